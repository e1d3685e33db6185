// Question 2: what does it cost to raise the flags of 2 to 16 receivers at system scope?
//
// A CTA of 128 threads stores a payload of 16 bytes a thread, meets at a barrier, and raises one flag for each receiver:
//
//   none       no flag: the payload and the barriers alone
//   serial     one thread, one `red.release.sys` after the other
//   warp       lane p of one warp raises the flag of receiver p: one `red.release.sys` of the warp
//   fence      lane p as before, but one `fence.acq_rel.sys` and then `red.relaxed.sys`
//   thread     one thread: one `fence.acq_rel.sys`, then `red.relaxed.sys` one after the other
//
// With two devices every other receiver is the second one, written over the link between them; with one all are the
// device itself. Flags and payloads are checked at the end.
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -o signal_many signal_many.cu
//   signal_many --runs 50 --commit C --json FILE
#include <cstdint>

#include "frame.cuh"

constexpr int MOST = 16, THREADS = 128, ROUNDS = 50, LAUNCHES = 20, FLAG_BYTES = 128;

struct Receivers {
    uint32_t *flag[MOST];
    uint4 *inbox[MOST];
};

enum Form { NONE, SERIAL, WARP, FENCE, THREAD, FORMS };
const char *const NAMES[FORMS] = {"none", "serial", "warp", "fence", "thread"};

__device__ inline void raise_release(uint32_t *flag) {
    asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
}
__device__ inline void raise_relaxed(uint32_t *flag) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
}
__device__ inline void fence() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

template <int FORM>
__global__ void __launch_bounds__(THREADS) send(Receivers to, int count, uint32_t launch) {
    const int thread = int(threadIdx.x);
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        const uint32_t word = launch * ROUNDS + round;
        to.inbox[thread % count][thread] = make_uint4(word, uint32_t(thread), word, ~word);
        __syncthreads();
        if (FORM == SERIAL && thread == 0) {
            for (int p = 0; p < count; ++p) raise_release(to.flag[p]);
        }
        if (FORM == WARP && thread < count) raise_release(to.flag[thread]);
        if (FORM == FENCE && thread < count) {
            fence();
            raise_relaxed(to.flag[thread]);
        }
        if (FORM == THREAD && thread == 0) {
            fence();
            for (int p = 0; p < count; ++p) raise_relaxed(to.flag[p]);
        }
        __syncthreads();
    }
}

using Kernel = void (*)(Receivers, int, uint32_t);
const Kernel KERNELS[FORMS] = {send<NONE>, send<SERIAL>, send<WARP>, send<FENCE>, send<THREAD>};

int main(int argc, char **argv) {
    const Options options(argc, argv, "signal_many");
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    devices = std::min(devices, 2);
    if (devices == 2) {
        int can = 0;
        CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
        devices = can ? 2 : 1;
    }
    Receivers to;
    std::vector<uint4 *> inboxes(devices);
    std::vector<char *> flags(devices);
    const size_t inbox_bytes = size_t(MOST) * THREADS * sizeof(uint4), flag_bytes = size_t(MOST) * FLAG_BYTES;
    for (int device = 0; device < devices; ++device) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc(&inboxes[device], inbox_bytes));
        CHECK(cudaMalloc(&flags[device], flag_bytes));
        CHECK(cudaMemset(inboxes[device], 0xff, inbox_bytes));
        CHECK(cudaMemset(flags[device], 0, flag_bytes));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(0));
    if (devices == 2) CHECK(cudaDeviceEnablePeerAccess(1, 0));
    for (int p = 0; p < MOST; ++p) {
        const int device = devices == 2 && p % 2 == 1 ? 1 : 0;
        to.flag[p] = reinterpret_cast<uint32_t *>(flags[device] + p * FLAG_BYTES);
        to.inbox[p] = inboxes[device] + p * THREADS;
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    Rows rows;
    std::vector<uint64_t> raised(MOST, 0);
    uint32_t last = 0;
    for (int count : {2, 4, 8, 16}) {
        std::vector<cudaGraphExec_t> graphs;
        for (int form = 0; form < FORMS; ++form) {
            graphs.push_back(graph_of(stream, LAUNCHES, [&](int n) {
                KERNELS[form]<<<1, THREADS, 0, stream>>>(to, count, uint32_t(n));
                CHECK(cudaGetLastError());
            }));
        }
        const auto times = by_turns(stream, graphs, options.runs);
        for (int form = 0; form < FORMS; ++form) {
            std::vector<double> one = times[form];
            for (double &time : one) time /= LAUNCHES * ROUNDS;
            char more[128];
            snprintf(more, sizeof more, ", \"rounds_of_a_launch\": %d, \"receivers\": %d", ROUNDS, count);
            rows.add(std::string(NAMES[form]) + ", " + std::to_string(count) + " receivers", one, LAUNCHES, more);
            CHECK(cudaGraphExecDestroy(graphs[form]));
        }
        for (int p = 0; p < count; ++p) raised[p] += uint64_t(options.runs + 3) * (FORMS - 1) * LAUNCHES * ROUNDS;
        last = (LAUNCHES - 1) * ROUNDS + ROUNDS - 1;
    }
    CHECK(cudaStreamSynchronize(stream));
    for (int p = 0; p < MOST; ++p) {
        uint32_t flag = 0;
        std::vector<uint4> inbox(THREADS);
        CHECK(cudaMemcpy(&flag, to.flag[p], 4, cudaMemcpyDefault));
        CHECK(cudaMemcpy(inbox.data(), to.inbox[p], THREADS * sizeof(uint4), cudaMemcpyDefault));
        bool is_right = flag == uint32_t(raised[p]);
        for (int thread = p; thread < THREADS; thread += MOST) {
            const uint4 found = inbox[thread];
            is_right &= found.x == last && found.y == uint32_t(thread) && found.z == last && found.w == ~last;
        }
        if (!is_right) {
            fprintf(stderr, "receiver %d: flag %u, wanted %u, or another payload\n", p, flag, uint32_t(raised[p]));
            return 1;
        }
    }
    return report(options, "signal_many", rows, ", \"cold\": false, \"devices\": " + std::to_string(devices));
}
