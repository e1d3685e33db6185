// The kernel of nvcc_restrict_flag.cu put right. Nothing promises that `x` does not change, so the reads are plain loads.
// Thread 0 looks at the flag by a load that acquires; the barrier hands on what it has seen.
static __device__ unsigned look(const unsigned* flag)
{
    unsigned seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}

extern "C" __global__ void gather(const float* x, const unsigned* flag, float* y, unsigned* done)
{
    __shared__ float buf[256];
    const unsigned t = threadIdx.x;
    if (t == 0) {
        while (look(flag) == 0) {
        }
    }
    __syncthreads();
    buf[t] = x[t];
    __syncthreads();
    y[t] = buf[255 - t];
    if (t == 0) {
        atomicAdd(done, 1u);
    }
}
