// Question 5, first part: the greatest of many keys and its index, by pairs that lanes shuffle or by `redux.sync`.
//
// `shuffle`: value and index go through five butterfly steps, the lower index wins a tie: what the compiler writes.
// `redux`: the keys become unsigned numbers of the same order; `redux.sync.max` finds the greatest, `redux.sync.min` the
// lowest index among those that have it. Both call -0 and +0 equal.
// top-16: 896 keys, sixteen rounds, a found key is taken out; in one CTA of 7 warps with 4 keys a lane, which exchange
// their winners through shared memory, and in one warp with 28 keys a lane. one: a single round over the same keys.
// Every result is checked against the host, with ties; outputs are poisoned before.
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -o lane_argmax lane_argmax.cu
//   lane_argmax --runs 50 --commit C --json FILE
#include <cstdint>

#include "frame.cuh"

constexpr int KEYS = 896, MOST = 16, LAUNCHES = 100;

struct Best {
    float value;
    int index;
};

__device__ inline bool beats(const Best &a, const Best &b) {
    return a.value > b.value || (a.value == b.value && a.index < b.index);
}

template <bool REDUX>
__device__ inline Best of_lanes(Best own) {
    if constexpr (REDUX) {
        // -0 becomes +0; negative numbers are turned round.
        const uint32_t bits = __float_as_uint(own.value + 0.0f);
        const uint32_t key = bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);
        const uint32_t most = __reduce_max_sync(~0u, key);
        const int index = int(__reduce_min_sync(~0u, key == most ? unsigned(own.index) : ~0u));
        const uint32_t back = most ^ (uint32_t(int32_t(~most) >> 31) | 0x80000000u);
        return Best{__uint_as_float(back), index};
    } else {
        for (int distance = 1; distance < 32; distance *= 2) {
            const Best other = {__shfl_xor_sync(~0u, own.value, distance), __shfl_xor_sync(~0u, own.index, distance)};
            if (beats(other, own)) own = other;
        }
        return own;
    }
}

template <bool REDUX, int WARPS, int ROUNDS>
__global__ void __launch_bounds__(WARPS * 32) top(const float *keys, int *ids) {
    constexpr int PER = KEYS / (WARPS * 32), VECTORS = PER / 4;
    __shared__ Best winners[2][WARPS];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    float key[PER];
    // Vectors of four neighbours, lane after lane, warp after warp, as the compiler spreads them.
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const float4 four = reinterpret_cast<const float4 *>(keys)[v * WARPS * 32 + threadIdx.x];
        key[v * 4] = four.x, key[v * 4 + 1] = four.y, key[v * 4 + 2] = four.z, key[v * 4 + 3] = four.w;
    }
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    auto index_of = [&](int i) { return (i / 4 * WARPS * 32 + int(threadIdx.x)) * 4 + i % 4; };
    int mine = 0;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        Best best = {key[0], index_of(0)};
#pragma unroll
        for (int i = 1; i < PER; ++i) {
            if (key[i] > best.value) best = Best{key[i], index_of(i)};
        }
        best = of_lanes<REDUX>(best);
        if (WARPS > 1) {
            if (threadIdx.x % 32 == 0) winners[round % 2][threadIdx.x / 32] = best;
            __syncthreads();
            best = winners[round % 2][0];
#pragma unroll
            for (int w = 1; w < WARPS; ++w) {
                const Best other = winners[round % 2][w];
                if (beats(other, best)) best = other;
            }
        }
        if (int(threadIdx.x) == round) mine = best.index;
#pragma unroll
        for (int i = 0; i < PER; ++i) {
            if (index_of(i) == best.index) key[i] = -INFINITY;
        }
    }
    if (threadIdx.x < ROUNDS) ids[threadIdx.x] = mine;
}

using Kernel = void (*)(const float *, int *);
struct Form {
    const char *name;
    Kernel kernel;
    int warps, rounds;
};
const Form FORMS[] = {
    {"one, 7 warps, shuffle", top<false, 7, 1>, 7, 1},   {"one, 7 warps, redux", top<true, 7, 1>, 7, 1},
    {"one, 1 warp, shuffle", top<false, 1, 1>, 1, 1},    {"one, 1 warp, redux", top<true, 1, 1>, 1, 1},
    {"top-16, 7 warps, shuffle", top<false, 7, 16>, 7, 16}, {"top-16, 7 warps, redux", top<true, 7, 16>, 7, 16},
    {"top-16, 1 warp, shuffle", top<false, 1, 16>, 1, 16},  {"top-16, 1 warp, redux", top<true, 1, 16>, 1, 16},
};
constexpr int COUNT = sizeof FORMS / sizeof FORMS[0];

int main(int argc, char **argv) {
    const Options options(argc, argv, "lane_argmax");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    float *keys;
    int *ids;
    CHECK(cudaMalloc(&keys, KEYS * 4));
    CHECK(cudaMalloc(&ids, MOST * 4));
    // Random keys, some equal, some zeros of both signs, infinities; all negative in the third set.
    for (int set = 0; set < 3; ++set) {
        std::vector<float> values(KEYS);
        uint32_t state = 12345 + set;
        for (float &value : values) {
            state = state * 1664525u + 1013904223u;
            value = float(int32_t(state) >> 8) / 8388608.0f * 4.0f;
            if (state % 7 == 0) value = set == 1 ? (state & 64 ? 0.0f : -0.0f) : 3.5f;
            if (set == 1 && state % 7 != 0) value = -std::abs(value);
            if (set == 2) value = -std::abs(value) - 1.0f;
        }
        if (set == 0) values[700] = INFINITY, values[3] = -INFINITY;
        CHECK(cudaMemcpy(keys, values.data(), KEYS * 4, cudaMemcpyHostToDevice));
        std::vector<int> order(KEYS);
        for (int i = 0; i < KEYS; ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
        for (const Form &form : FORMS) {
            CHECK(cudaMemset(ids, 0xff, MOST * 4));
            form.kernel<<<1, form.warps * 32, 0, stream>>>(keys, ids);
            CHECK(cudaGetLastError());
            CHECK(cudaStreamSynchronize(stream));
            int found[MOST];
            CHECK(cudaMemcpy(found, ids, MOST * 4, cudaMemcpyDeviceToHost));
            if (!std::equal(found, found + form.rounds, order.begin())) {
                fprintf(stderr, "%s, set %d: wrong\n", form.name, set);
                return 1;
            }
        }
    }
    std::vector<cudaGraphExec_t> graphs;
    for (const Form &form : FORMS) {
        graphs.push_back(graph_of(stream, LAUNCHES, [&](int) {
            form.kernel<<<1, form.warps * 32, 0, stream>>>(keys, ids);
            CHECK(cudaGetLastError());
        }));
    }
    const auto times = by_turns(stream, graphs, options.runs);
    Rows rows;
    for (int form = 0; form < COUNT; ++form) {
        std::vector<double> one = times[form];
        for (double &time : one) time /= LAUNCHES;
        rows.add(FORMS[form].name, one, LAUNCHES, "");
    }
    return report(options, "lane_argmax", rows, ", \"cold\": false");
}
