#!/bin/bash
# Wheels for a GPU machine without network: DeepSpeed and what it and `dsjob run` need beside that machine's own torch
# and transformers. Run it anywhere with pip; then take the folder along and run install.sh there.
#
#     bench/gpu/wheels.sh [FOLDER]        (.wheels by default, ≈ 10 MB)
set -euo pipefail
folder=${1:-.wheels}
# Of the machine: Python 3.12 on x86-64.
platforms=(--python-version 3.12 --implementation cp --only-binary=:all:)
for each in manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 manylinux1_x86_64; do
    platforms+=(--platform "$each")
done
mkdir -p "$folder"
python3 -m pip download --quiet --no-deps --dest "$folder" "${platforms[@]}" \
    hjson py-cpuinfo msgpack einops ninja psutil tqdm pyyaml==6.0.4 \
    pydantic==2.14.4 pydantic-core==2.50.5 annotated-types typing-inspection typing_extensions
# It has no wheel; nothing is compiled before it is used.
DS_BUILD_OPS=0 python3 -m pip wheel --quiet --no-deps --no-binary deepspeed --wheel-dir "$folder" deepspeed==0.19.8
du -sh "$folder"
