"""The rim: kopf, the pod informer, the queue, the API client, leader election, events, health and metrics."""
