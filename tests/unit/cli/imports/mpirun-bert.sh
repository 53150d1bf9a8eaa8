#!/bin/bash
# deepspeedai/DeepSpeedExamples training/bing_bert/1-bit_adam/mpi_infiniband/mpi_train_bert_onebitadam_bsz4k_seq128_infiniband.sh
base_dir=`pwd`
JOB_NAME=onebit_adam_4k_seq128_mpirun_infiniband
OUTPUT_DIR=${base_dir}/bert_model_outputs
mkdir -p $OUTPUT_DIR
mpirun -n 128 -ppn 8 -f /tmp/deepspeed_mvapich_hostfile -env MV2_SUPPORT_DL=1 -env MV2_USE_GDR=0 -env MV2_USE_CUDA=1 -env MV2_USE_GDRCOPY=0 -env MV2_SMP_USE_CMA=0 -env MV2_DEBUG_SHOW_BACKTRACE=1 python ${base_dir}/../../deepspeed_train.py \
--cf ${base_dir}/../../bert_large.json \
--max_seq_length 128 \
--output_dir $OUTPUT_DIR \
--deepspeed_mpi \
--deepspeed \
--deepspeed_transformer_kernel \
--print_steps 40 \
--lr_schedule "LE" \
--lr_offset 0.0 \
--job_name $JOB_NAME \
--deepspeed_config ${base_dir}/deepspeed_bsz4k_onebitadam_config_seq128_mpi_infiniband.json \
--data_path_prefix /data/bert \
&> ${JOB_NAME}.log
