// Does racecheck follow a hand-over through an mbarrier when one lane arrives for its warp?
//
// One warp stores 32 words to shared memory, another one reads them in reverse order behind an mbarrier.
//
//   each     every lane arrives, 32 arrivals
//   lane     the warp meets at `bar.warp.sync`, which orders the memory of its lanes, and lane 0 arrives, 1 arrival: what
//            the compiler writes for roles
//   none     nobody waits: a race, which must be found
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -o handover handover.cu
//   compute-sanitizer --tool racecheck handover each|lane|none
#include <cstdint>

#include "frame.cuh"

enum Way { EACH, LANE, NONE };

template <int WAY>
__global__ void __launch_bounds__(64) hand(int *out) {
    __shared__ int slot[32];
    __shared__ uint64_t full;
    const uint32_t barrier = uint32_t(__cvta_generic_to_shared(&full));
    const int lane = int(threadIdx.x) % 32;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(WAY == EACH ? 32 : 1) : "memory");
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        slot[lane] = lane * 3;
        if (WAY == LANE) __syncwarp();
        if (WAY == EACH || (WAY == LANE && lane == 0)) {
            asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
        }
    } else {
        if (WAY != NONE) {
            uint32_t done = 0;
            while (!done) {
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(barrier)
                             : "memory");
            }
        }
        out[lane] = slot[31 - lane];
    }
}

int main(int argc, char **argv) {
    const char *way = argc == 2 ? argv[1] : "";
    void (*kernel)(int *) = !strcmp(way, "each") ? hand<EACH> : !strcmp(way, "lane") ? hand<LANE> : !strcmp(way, "none") ? hand<NONE> : nullptr;
    if (!kernel) {
        fprintf(stderr, "usage: handover each|lane|none\n");
        return 2;
    }
    int *out, found[32];
    CHECK(cudaMalloc(&out, sizeof found));
    CHECK(cudaMemset(out, 0xff, sizeof found));
    kernel<<<1, 64>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost));
    for (int lane = 0; lane < 32; ++lane) {
        if (strcmp(way, "none") && found[lane] != (31 - lane) * 3) {
            fprintf(stderr, "lane %d: %d\n", lane, found[lane]);
            return 1;
        }
    }
    return 0;
}
