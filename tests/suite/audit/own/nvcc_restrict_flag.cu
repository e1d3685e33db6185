// Thread 0 spins on a flag, a barrier lets the others pass, and all read what the flag guards.
// `const` and `__restrict__` say that nobody writes `x` while the kernel runs, so the read is non-coherent.
extern "C" __global__ void gather(const float* __restrict__ x, const volatile unsigned* flag, float* __restrict__ y, unsigned* done)
{
    __shared__ float buf[256];
    const unsigned t = threadIdx.x;
    if (t == 0) {
        while (*flag == 0) {
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
