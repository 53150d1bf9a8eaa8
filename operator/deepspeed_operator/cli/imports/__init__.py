"""Jobs of other kinds → DeepSpeedJobs. Everything here is pure: documents and texts in, manifests and remarks out."""
