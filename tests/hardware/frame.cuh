// What the CUDA programs of this folder share: the command line, graphs that take turns, and the report.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t status_ = (call);                                                                        \
        if (status_ != cudaSuccess) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_));      \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

struct Options {
    int runs = 50;
    const char *json = nullptr, *commit = "";

    Options(int argc, char **argv, const char *program) {
        for (int i = 1; i < argc; ++i) {
            const bool has_value = i + 1 < argc;
            if (!strcmp(argv[i], "--runs") && has_value) runs = std::max(1, atoi(argv[++i]));
            else if (!strcmp(argv[i], "--json") && has_value) json = argv[++i];
            else if (!strcmp(argv[i], "--commit") && has_value) commit = argv[++i];
            else {
                fprintf(stderr, "usage: %s [--runs N] [--commit HASH] [--json FILE]\n", program);
                exit(2);
            }
        }
    }
};

// Of values in any order, with a part of 0 the least and of 1 the greatest.
inline double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    const double place = part * (values.size() - 1);
    const size_t low = size_t(place);
    return values[low] + (values[std::min(low + 1, values.size() - 1)] - values[low]) * (place - low);
}

// A graph of launches, the n-th made by `launch(n)` on the stream.
template <class Launch>
cudaGraphExec_t graph_of(cudaStream_t stream, int launches, Launch launch) {
    cudaGraph_t graph;
    cudaGraphExec_t made;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int n = 0; n < launches; ++n) launch(n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&made, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return made;
}

// Microseconds of each start of each graph, the graphs by turns; three starts of each do not count.
inline std::vector<std::vector<double>> by_turns(cudaStream_t stream, const std::vector<cudaGraphExec_t> &graphs, int runs) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<std::vector<double>> times(graphs.size());
    for (int run = 0; run < runs + 3; ++run) {
        for (size_t turn = 0; turn < graphs.size(); ++turn) {
            const size_t form = (turn + run) % graphs.size();
            float ms = 0;
            CHECK(cudaEventRecord(begin, stream));
            CHECK(cudaGraphLaunch(graphs[form], stream));
            CHECK(cudaEventRecord(end, stream));
            CHECK(cudaEventSynchronize(end));
            CHECK(cudaEventElapsedTime(&ms, begin, end));
            if (run >= 3) times[form].push_back(ms * 1e3);
        }
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return times;
}

// Rows of a report, printed as they come.
struct Rows {
    std::string text;

    // `times` are of what is reported, not of a whole graph; `more` is further JSON, starting with a comma.
    void add(const std::string &form, const std::vector<double> &times, int launches, const std::string &more) {
        char part[512];
        snprintf(part, sizeof part,
                 "%s\n  {\"form\": \"%s\", \"microseconds\": {\"median\": %.4f, \"p10\": %.4f, \"p90\": %.4f, \"least\": %.4f, "
                 "\"greatest\": %.4f, \"runs\": %d}, \"launches_of_a_graph\": %d",
                 text.empty() ? "" : ",", form.c_str(), quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9),
                 quantile(times, 0.0), quantile(times, 1.0), int(times.size()), launches);
        text += part + more + "}";
        printf("%-34s %8.3f us (%.3f to %.3f)\n", form.c_str(), quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9));
    }
};

// Writes the report, where one is wanted; `more` is further JSON, starting with a comma. The exit code.
inline int report(const Options &options, const char *program, const Rows &rows, const std::string &more) {
    if (!options.json) return 0;
    cudaDeviceProp device;
    int driver = 0;
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cudaDriverGetVersion(&driver));
    char date[32];
    const time_t now = time(nullptr);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    FILE *file = fopen(options.json, "w");
    if (!file) {
        perror(options.json);
        return 1;
    }
    fprintf(file,
            "{\n \"date\": \"%s\",\n \"gpu\": \"%s\",\n \"driver\": %d,\n \"multiprocessors\": %d,\n \"commit\": \"%s\",\n"
            " \"command\": \"%s --runs %d --commit %s\"%s,\n \"rows\": [%s\n ]\n}\n",
            date, device.name, driver, device.multiProcessorCount, options.commit, program, options.runs, options.commit,
            more.c_str(), rows.text.c_str());
    if (fclose(file) != 0) {
        perror(options.json);
        return 1;
    }
    return 0;
}
