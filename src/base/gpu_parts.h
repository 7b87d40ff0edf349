/* Parts of a GPU whose load is the sum of the loads of the programs that share it in space. */
#ifndef CEDE_BASE_GPU_PARTS_H
#define CEDE_BASE_GPU_PARTS_H

enum gpu_part {
    PART_INTEGER,
    PART_TENSOR_FP64,
    PART_TENSOR_FP16, /* and BF16, TF32, FP8 */
    PART_TENSOR_INTEGER,
    PART_FP64,
    PART_FP32,
    PART_FP16,
    PART_DRAM, /* bandwidth */
    GPU_PARTS,
};

/* A relative speed that was computed from the parts' loads is ignored if its standard deviation is
 * larger than this. */
#define SPEED_ERROR_MAX 0.15

#endif
