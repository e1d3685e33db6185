// Question 4, second half: how the two halves of a routed expert hand their intermediate over.
//
// An expert is act = gate(W1 z, W3 z), 192 values, and y = W2 act, 3584 values (Kimi K3 at TP16), with e2m1 weights in
// groups of 32 and ue8m0 scales. Eight CTAs share a pick: each does 24 values of act and then 448 rows of W2, for which
// it needs all 192. The same code does both halves in every form; the forms differ in what stands between them:
//
//   cluster    a cluster of 8: each CTA writes its 24 values to the shared memory of all (DSMEM), one cluster barrier
//   alone      the same with so much shared memory that an SM takes one CTA, as a cluster may crowd two on one
//   sweeps     one persistent launch: all first halves, then all second halves, which wait at a counter of their pick
//   turns      one persistent launch: first and second half of an item by turns, the same counters
//   launches   two launches, the second started early, as the kernels of Kimi K3 are: weights are read after the wait
//   settled    the same, but the picks are settled, so the second launch reads its weights before the wait
//
// Every form is first checked against the host on poisoned outputs. Times: events around graphs whose launches all have
// picks of their own, so that nothing of a launch is in the cache; the forms take turns.
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -o expert_exchange expert_exchange.cu
//   expert_exchange --runs 50 --commit C --json FILE
#include <cooperative_groups.h>

#include <cmath>
#include <cstdint>

#include "frame.cuh"

namespace cg = cooperative_groups;

constexpr int EXPERTS = 896, PICKS = 16, I = 192, Z = 3584, GROUP = 32;
constexpr int SHARE = 8;                   // CTAs of a pick
constexpr int THREADS = 256, WARPS = 8;
constexpr int OWN = I / SHARE;             // values of act that a CTA makes
constexpr int ROWS = Z / SHARE;            // rows of W2 that a CTA does
constexpr int GZ = Z / GROUP, GI = I / GROUP;
constexpr int PAD = GROUP + 4;             // words of a group in shared memory: no two lanes meet in a bank
constexpr int CHUNKS = (ROWS / WARPS * GI + 31) / 32;   // 16-byte pieces of W2 a lane
constexpr int WHOLE_SM = 120 * 1024;                    // more than half of the shared memory of an SM
constexpr long long SPIN_LIMIT = 2000000000;            // clock cycles, about a second

struct Problem {
    const uint4 *w13;       // [EXPERTS, 2, I, GZ] pieces of 32 weights
    const uint8_t *s13;     // [EXPERTS, 2, I, GZ]
    const uint4 *w2;        // [EXPERTS, Z, GI]
    const uint8_t *s2;      // [EXPERTS, Z, GI]
    const float *z;         // [M, Z]
    const int *id;          // [picks]
    float *act;             // [picks, I]
    float *y;               // [picks, Z]
    unsigned *arrived, *left;   // [picks], zero between launches
    unsigned *stuck;            // set when a spin did not end
    int picks;
};

// The same numbers on host and device, from an index.
__host__ __device__ inline uint32_t mix(uint64_t at, uint32_t seed) {
    uint64_t x = at * 0x9e3779b97f4a7c15ull + (uint64_t(seed) << 32 | 0x632be5abu);
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    return uint32_t(x);
}
__host__ __device__ inline uint8_t scale_at(uint64_t at, uint32_t seed) { return uint8_t(118 + (mix(at, seed) >> 9 & 7)); }

// gate = 4 tanh(g / 4) sigmoid(g), times 25 tanh(u / 25).
__host__ __device__ inline float activation(float g, float u) {
    return 4.0f * tanhf(g * 0.25f) / (1.0f + expf(-g)) * 25.0f * tanhf(u * 0.04f);
}

// Loads that do not move past the next barrier or wait, so that what a form has in flight across its exchange is in
// flight there. Non-coherent ones (`.nc`) would be sunk to their uses, one after the other.
__device__ inline uint4 piece_at(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}
__device__ inline uint32_t byte_at(const uint8_t *at) {
    uint32_t v;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

// Adds the products of 32 weights with 32 values. Magnitudes as the upper halves of floats, by bytes of a table.
__device__ inline float products(uint4 weights, const float *x) {
    const uint32_t words[4] = {weights.x, weights.y, weights.z, weights.w};
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const uint32_t codes = words[w] & 0x77777777u, up = words[w] << 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t pick = codes >> (16 * half);
            const uint32_t high = __byte_perm(0x3f3f3f00u, 0x40404040u, pick)
                | (__byte_perm(up, words[w], half ? 0x7362 : 0x5140) & 0x80808080u);
            const uint32_t low = __byte_perm(0xc0800000u, 0xc0804000u, pick);
            const uint32_t a = __byte_perm(low, high, 0x5140), b = __byte_perm(low, high, 0x7362);
            const float4 v = *reinterpret_cast<const float4 *>(x + w * 8 + half * 4);
            sum = fmaf(__uint_as_float(a << 16), v.x, sum);
            sum = fmaf(__uint_as_float(a & 0xffff0000u), v.y, sum);
            sum = fmaf(__uint_as_float(b << 16), v.z, sum);
            sum = fmaf(__uint_as_float(b & 0xffff0000u), v.w, sum);
        }
    }
    return sum;
}

__device__ inline float power(uint32_t scale) { return __uint_as_float(scale << 23); }

// First half: the values of act that CTA `share` of a pick makes, into `mine`; `zs` is Z padded values.
__device__ void first_half(const Problem &p, int pick, int share, float *zs, float *mine) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    constexpr int PER = OWN / WARPS;       // values a warp
    const int64_t e = p.id[pick];
    const int first = share * OWN + warp * PER;
    const float *z = p.z + int64_t(pick / PICKS) * Z;
    float sums[2 * PER] = {};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
        uint4 w[2][2 * PER];
        uint32_t s[2][2 * PER];
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const int g = (step * 2 + part) * 32 + lane;
#pragma unroll
            for (int r = 0; r < 2 * PER; ++r) {
                const int64_t row = (e * 2 + r / PER) * I + first + r % PER;
                w[part][r] = g < GZ ? piece_at(p.w13 + row * GZ + g) : uint4{0, 0, 0, 0};
                s[part][r] = g < GZ ? byte_at(p.s13 + row * GZ + g) : 127;
            }
        }
        if (step == 0) {
            for (int i = threadIdx.x; i < Z; i += THREADS) zs[i / GROUP * PAD + i % GROUP] = z[i];
        }
        __syncthreads();
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const int g = min((step * 2 + part) * 32 + lane, GZ - 1);
#pragma unroll
            for (int r = 0; r < 2 * PER; ++r) sums[r] = fmaf(products(w[part][r], zs + g * PAD), power(s[part][r]), sums[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < 2 * PER; ++r) {
        for (int distance = 1; distance < 32; distance *= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], distance);
    }
    if (lane == 0) {
        for (int r = 0; r < PER; ++r) mine[warp * PER + r] = activation(sums[r], sums[PER + r]);
    }
}

// What a lane reads of W2.
struct Piece {
    uint4 w[CHUNKS];
    uint32_t s[CHUNKS];
};

__device__ inline void fetch(const Problem &p, int pick, int share, Piece &piece) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t base = (int64_t(p.id[pick]) * Z + share * ROWS + warp * (ROWS / WARPS)) * GI;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const int at = i * 32 + lane;
        const bool is_there = at < ROWS / WARPS * GI;
        piece.w[i] = is_there ? piece_at(p.w2 + base + at) : uint4{0, 0, 0, 0};
        piece.s[i] = is_there ? byte_at(p.s2 + base + at) : 127;
    }
}

// Second half; `acts` is I padded values, `parts` one sum a piece.
__device__ void second_half(const Problem &p, int pick, int share, const Piece &piece, const float *acts, float *parts) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *own = parts + warp * CHUNKS * 32;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const int at = i * 32 + lane;
        own[at] = products(piece.w[i], acts + at % GI * PAD) * power(piece.s[i]);
    }
    __syncwarp();
    for (int row = lane; row < ROWS / WARPS; row += 32) {
        float sum = 0.0f;
        for (int g = 0; g < GI; ++g) sum += own[row * GI + g];
        p.y[int64_t(pick) * Z + share * ROWS + warp * (ROWS / WARPS) + row] = sum;
    }
}

struct Shared {
    float z[GZ * PAD];
    float acts[GI * PAD];
    float parts[WARPS * CHUNKS * 32];
    float mine[OWN];
};

__global__ void __cluster_dims__(SHARE, 1, 1) __launch_bounds__(THREADS, 2) cluster_kernel(Problem p) {
    extern __shared__ __align__(16) char memory[];
    Shared &sh = *reinterpret_cast<Shared *>(memory);
    auto cluster = cg::this_cluster();
    auto started = cluster.barrier_arrive();
    const int pick = blockIdx.y, share = blockIdx.x;
    first_half(p, pick, share, sh.z, sh.mine);
    Piece piece;
    fetch(p, pick, share, piece);
    __syncthreads();
    cluster.barrier_wait(std::move(started));
    // 24 values to each of 8 CTAs: one a thread.
    if (threadIdx.x < OWN * SHARE) {
        const int to = threadIdx.x / OWN, at = share * OWN + threadIdx.x % OWN;
        float *target = cluster.map_shared_rank(sh.acts, to);
        target[at / GROUP * PAD + at % GROUP] = sh.mine[threadIdx.x % OWN];
    }
    cluster.sync();
    second_half(p, pick, share, piece, sh.acts, sh.parts);
}

__device__ void hand_over(const Problem &p, int pick, int share, const Shared &sh) {
    __syncthreads();
    if (threadIdx.x < OWN) p.act[int64_t(pick) * I + share * OWN + threadIdx.x] = sh.mine[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p.arrived + pick) : "memory");
}

// Waits until all shares of a pick have arrived; the last that leaves makes the counters zero again.
__device__ void take_over(const Problem &p, int pick, Shared &sh) {
    if (threadIdx.x == 0) {
        const long long begin = clock64();
        unsigned count = 0;
        while (true) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(p.arrived + pick) : "memory");
            if (count >= SHARE) break;
            if (clock64() - begin > SPIN_LIMIT) {
                atomicExch(p.stuck, 1u);
                break;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < I) sh.acts[threadIdx.x / GROUP * PAD + threadIdx.x % GROUP] = __ldcg(p.act + int64_t(pick) * I + threadIdx.x);
    if (threadIdx.x == 0 && atomicAdd(p.left + pick, 1u) == SHARE - 1) {
        p.arrived[pick] = 0;
        p.left[pick] = 0;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS, 2) sweeps_kernel(Problem p) {
    extern __shared__ __align__(16) char memory[];
    Shared &sh = *reinterpret_cast<Shared *>(memory);
    for (int item = blockIdx.x; item < p.picks * SHARE; item += gridDim.x) {
        first_half(p, item / SHARE, item % SHARE, sh.z, sh.mine);
        hand_over(p, item / SHARE, item % SHARE, sh);
    }
    for (int item = blockIdx.x; item < p.picks * SHARE; item += gridDim.x) {
        Piece piece;
        fetch(p, item / SHARE, item % SHARE, piece);
        take_over(p, item / SHARE, sh);
        second_half(p, item / SHARE, item % SHARE, piece, sh.acts, sh.parts);
        __syncthreads();
    }
}

// The shares of a pick are items of one round, since the grid is a multiple of 8.
__global__ void __launch_bounds__(THREADS, 2) turns_kernel(Problem p) {
    extern __shared__ __align__(16) char memory[];
    Shared &sh = *reinterpret_cast<Shared *>(memory);
    for (int item = blockIdx.x; item < p.picks * SHARE; item += gridDim.x) {
        first_half(p, item / SHARE, item % SHARE, sh.z, sh.mine);
        Piece piece;
        fetch(p, item / SHARE, item % SHARE, piece);
        hand_over(p, item / SHARE, item % SHARE, sh);
        take_over(p, item / SHARE, sh);
        second_half(p, item / SHARE, item % SHARE, piece, sh.acts, sh.parts);
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS, 2) first_kernel(Problem p) {
    extern __shared__ __align__(16) char memory[];
    Shared &sh = *reinterpret_cast<Shared *>(memory);
    const int pick = blockIdx.y, share = blockIdx.x;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    first_half(p, pick, share, sh.z, sh.mine);
    __syncthreads();
    if (threadIdx.x < OWN) p.act[int64_t(pick) * I + share * OWN + threadIdx.x] = sh.mine[threadIdx.x];
}

template <bool SETTLED>
__global__ void __launch_bounds__(THREADS, 2) second_kernel(Problem p) {
    extern __shared__ __align__(16) char memory[];
    Shared &sh = *reinterpret_cast<Shared *>(memory);
    const int pick = blockIdx.y, share = blockIdx.x;
    Piece piece;
    if (SETTLED) fetch(p, pick, share, piece);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (!SETTLED) fetch(p, pick, share, piece);
    if (threadIdx.x < I) sh.acts[threadIdx.x / GROUP * PAD + threadIdx.x % GROUP] = __ldcg(p.act + int64_t(pick) * I + threadIdx.x);
    __syncthreads();
    second_half(p, pick, share, piece, sh.acts, sh.parts);
}

__global__ void fill_words(uint32_t *words, uint64_t count, uint32_t seed) {
    for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < count; i += uint64_t(gridDim.x) * blockDim.x) words[i] = mix(i, seed);
}
__global__ void fill_scales(uint8_t *scales, uint64_t count, uint32_t seed) {
    for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < count; i += uint64_t(gridDim.x) * blockDim.x) scales[i] = scale_at(i, seed);
}

enum Form { CLUSTER, ALONE, SWEEPS, TURNS, LAUNCHES, SETTLED, FORMS };
const char *const NAMES[FORMS] = {"cluster", "alone", "sweeps", "turns", "launches", "settled"};
constexpr uint32_t SEED_W13 = 1, SEED_S13 = 2, SEED_W2 = 3, SEED_S2 = 4, SEED_Z = 5;

static void launch(Form form, Problem p, int persistent, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = sizeof(Shared);
    config.stream = stream;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(SHARE, p.picks);
    switch (form) {
        case ALONE: config.dynamicSmemBytes = WHOLE_SM; [[fallthrough]];
        case CLUSTER: CHECK(cudaLaunchKernelEx(&config, cluster_kernel, p)); return;
        case SWEEPS:
        case TURNS:
            config.gridDim = dim3(std::min(persistent, p.picks * SHARE));
            CHECK(cudaLaunchKernelEx(&config, form == SWEEPS ? sweeps_kernel : turns_kernel, p));
            return;
        case LAUNCHES:
        case SETTLED:
            CHECK(cudaLaunchKernelEx(&config, first_kernel, p));
            config.attrs = &early;
            config.numAttrs = 1;
            CHECK(cudaLaunchKernelEx(&config, form == SETTLED ? second_kernel<true> : second_kernel<false>, p));
            return;
        case FORMS: return;
    }
}

static float code(uint32_t nibble) {
    static const float magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return nibble & 8 ? -magnitudes[nibble & 7] : magnitudes[nibble & 7];
}

// The row of a matrix times x, in double.
static double row_times(uint64_t row, int groups, uint32_t seed_w, uint32_t seed_s, const double *x) {
    double sum = 0.0;
    for (int g = 0; g < groups; ++g) {
        const uint64_t piece = row * groups + g;
        double part = 0.0;
        for (int w = 0; w < 4; ++w) {
            const uint32_t word = mix(piece * 4 + w, seed_w);
            for (int n = 0; n < 8; ++n) part += code(word >> (4 * n) & 15) * x[g * GROUP + w * 8 + n];
        }
        sum += part * std::ldexp(1.0, int(scale_at(piece, seed_s)) - 127);
    }
    return sum;
}

static std::vector<double> reference(const std::vector<int> &ids, const std::vector<float> &z) {
    std::vector<double> y(ids.size() * Z);
    for (size_t pick = 0; pick < ids.size(); ++pick) {
        std::vector<double> x(z.begin() + pick / PICKS * Z, z.begin() + (pick / PICKS + 1) * Z), act(I);
        const uint64_t e = ids[pick];
        for (int i = 0; i < I; ++i) {
            const double g = row_times((e * 2) * I + i, GZ, SEED_W13, SEED_S13, x.data());
            const double u = row_times((e * 2 + 1) * I + i, GZ, SEED_W13, SEED_S13, x.data());
            act[i] = 4.0 * std::tanh(g * 0.25) / (1.0 + std::exp(-g)) * 25.0 * std::tanh(u * 0.04);
        }
        for (int r = 0; r < Z; ++r) y[pick * Z + r] = row_times(e * Z + r, GI, SEED_W2, SEED_S2, act.data());
    }
    return y;
}

int main(int argc, char **argv) {
    const Options options(argc, argv, "expert_exchange");
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    const uint64_t pieces13 = uint64_t(EXPERTS) * 2 * I * GZ, pieces2 = uint64_t(EXPERTS) * Z * GI;
    uint4 *w13, *w2;
    uint8_t *s13, *s2;
    CHECK(cudaMalloc(&w13, pieces13 * 16));
    CHECK(cudaMalloc(&w2, pieces2 * 16));
    CHECK(cudaMalloc(&s13, pieces13));
    CHECK(cudaMalloc(&s2, pieces2));
    fill_words<<<2048, 256, 0, stream>>>(reinterpret_cast<uint32_t *>(w13), pieces13 * 4, SEED_W13);
    fill_words<<<2048, 256, 0, stream>>>(reinterpret_cast<uint32_t *>(w2), pieces2 * 4, SEED_W2);
    fill_scales<<<2048, 256, 0, stream>>>(s13, pieces13, SEED_S13);
    fill_scales<<<2048, 256, 0, stream>>>(s2, pieces2, SEED_S2);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    const int shared = int(sizeof(Shared));
    CHECK(cudaFuncSetAttribute(cluster_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
    CHECK(cudaFuncSetAttribute(sweeps_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaFuncSetAttribute(turns_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaFuncSetAttribute(first_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaFuncSetAttribute(second_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaFuncSetAttribute(second_kernel<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    int resident = 0, other = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, sweeps_kernel, THREADS, shared));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&other, turns_kernel, THREADS, shared));
    const int persistent = std::min(resident, other) * device.multiProcessorCount / SHARE * SHARE;
    if (persistent == 0) {
        fprintf(stderr, "no CTA fits\n");
        return 1;
    }
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));

    // The rate of copies, bytes read and written, beside it.
    const size_t copied = size_t(1) << 30;
    char *from, *to;
    CHECK(cudaMalloc(&from, copied));
    CHECK(cudaMalloc(&to, copied));
    CHECK(cudaMemsetAsync(from, 1, copied, stream));
    std::vector<double> rates;
    for (int run = 0; run < 23; ++run) {
        float ms = 0;
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaMemcpyAsync(to, from, copied, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (run >= 3) rates.push_back(2.0 * copied / (ms * 1e-3));
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    const double copy_rate = quantile(rates, 0.5);

    Rows rows;
    bool is_right = true;
    for (int m : {1, 8}) {
        const int picks = m * PICKS, launches = m == 1 ? 32 : 8;
        std::vector<float> z(size_t(m) * Z);
        for (size_t i = 0; i < z.size(); ++i) z[i] = float(mix(i, SEED_Z) >> 8) / float(1 << 23) - 1.0f;
        // Sixteen different experts a token.
        std::vector<int> ids;
        for (int token = 0; token < launches * m; ++token) {
            std::vector<int> own;
            for (uint64_t n = 0; own.size() < PICKS; ++n) {
                const int e = int(mix(uint64_t(token) * 4096 + n, 7 + m) % EXPERTS);
                if (std::find(own.begin(), own.end(), e) == own.end()) own.push_back(e);
            }
            ids.insert(ids.end(), own.begin(), own.end());
        }
        float *z_there, *act, *y;
        int *id;
        unsigned *counters;
        CHECK(cudaMalloc(&z_there, z.size() * 4));
        CHECK(cudaMalloc(&act, size_t(picks) * I * 4));
        CHECK(cudaMalloc(&y, size_t(picks) * Z * 4));
        CHECK(cudaMalloc(&id, ids.size() * 4));
        CHECK(cudaMalloc(&counters, (2 * picks + 1) * 4));
        CHECK(cudaMemcpy(z_there, z.data(), z.size() * 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(id, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(counters, 0, (2 * picks + 1) * 4));
        Problem p = {w13, s13, w2, s2, z_there, id, act, y, counters, counters + picks, counters + 2 * picks, picks};
        const std::vector<double> wanted = reference(std::vector<int>(ids.begin(), ids.begin() + picks), z);
        double greatest = 0.0;
        for (double v : wanted) greatest = std::max(greatest, std::fabs(v));
        auto check = [&](Form form) {
            CHECK(cudaMemsetAsync(act, 0xff, size_t(picks) * I * 4, stream));
            CHECK(cudaMemsetAsync(y, 0xff, size_t(picks) * Z * 4, stream));
            launch(form, p, persistent, stream);
            CHECK(cudaStreamSynchronize(stream));
            std::vector<float> found(size_t(picks) * Z);
            unsigned stuck = 0;
            CHECK(cudaMemcpy(found.data(), y, found.size() * 4, cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(&stuck, p.stuck, 4, cudaMemcpyDeviceToHost));
            double error = 0.0;
            for (size_t i = 0; i < found.size(); ++i) {
                const double off = std::fabs(double(found[i]) - wanted[i]) / greatest;
                error = off <= error ? error : off;    // a NaN stays
            }
            const bool ok = error < 1e-4 && !stuck;
            if (!ok) fprintf(stderr, "%s, M = %d: error %g, stuck %u\n", NAMES[form], m, error, stuck);
            is_right = is_right && ok;
            return error;
        };
        double errors[FORMS];
        for (int form = 0; form < FORMS; ++form) errors[form] = check(Form(form));
        if (!is_right) return 1;
        std::vector<cudaGraphExec_t> graphs;
        for (int form = 0; form < FORMS; ++form) {
            graphs.push_back(graph_of(stream, launches, [&](int n) {
                Problem one = p;
                one.id = id + n * picks;
                launch(Form(form), one, persistent, stream);
            }));
        }
        const auto times = by_turns(stream, graphs, options.runs);
        for (int form = 0; form < FORMS; ++form) check(Form(form));
        if (!is_right) return 1;
        const double bytes = double(picks) * (double(2 * I * GZ + Z * GI) * 17 + 4.0 * Z) + 4.0 * m * Z;
        for (int form = 0; form < FORMS; ++form) {
            std::vector<double> one = times[form];
            for (double &time : one) time /= launches;
            char more[256];
            snprintf(more, sizeof more, ", \"m\": %d, \"bytes\": %.0f, \"percent_of_copy_rate\": %.2f, \"error\": %.3g", m, bytes,
                     bytes / quantile(one, 0.5) * 1e8 / copy_rate, errors[form]);
            rows.add(NAMES[form], one, launches, more);
            CHECK(cudaGraphExecDestroy(graphs[form]));
        }
        CHECK(cudaFree(z_there));
        CHECK(cudaFree(act));
        CHECK(cudaFree(y));
        CHECK(cudaFree(id));
        CHECK(cudaFree(counters));
    }
    char more[128];
    snprintf(more, sizeof more, ", \"cold\": true, \"persistent_ctas\": %d, \"copy_bytes_per_second\": %.0f", persistent, copy_rate);
    return report(options, "expert_exchange", rows, more);
}
