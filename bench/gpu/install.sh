# Sourced on the GPU machine, in the checkout's root: `. bench/gpu/install.sh [FOLDER]` with the folder of wheels.sh.
# Installs beside the machine's torch and transformers, and compiles once what every rank loads ($OPS). What that makes
# may be taken along, too: `tar czf .wheels/installed.tgz -C /tmp site extensions`; it saves a minute on the next machine.
[ ! -f "${1:-.wheels}/installed.tgz" ] || tar xzf "${1:-.wheels}/installed.tgz" -C /tmp
[ -d /tmp/site/deepspeed ] || python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --upgrade --target /tmp/site "${1:-.wheels}"/*.whl || exit
export PYTHONPATH=/tmp/site:$PWD/operator:$PWD PATH=/tmp/site/bin:$PATH PYTHONUNBUFFERED=1
# 9.0a, which images of Hopper machines set, is not understood by DeepSpeed.
export TORCH_CUDA_ARCH_LIST=9.0 TORCH_EXTENSIONS_DIR=/tmp/extensions OMP_NUM_THREADS=8
export TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
for builder in ${OPS:-FusedAdamBuilder CPUAdamBuilder}; do
    python3 -c "from deepspeed.ops.op_builder import $builder as builder; builder().load(verbose=False)" \
        >"/tmp/$builder.log" 2>&1 || { echo "$builder failed:"; tail -n 20 "/tmp/$builder.log"; } &
done
wait
