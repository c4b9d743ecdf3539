// Sums of the gradients of softmax regressions at several parameters on the same batches.
//
// An image is read where it lies, by its row number, once for the scores and once, from the cache,
// for the slopes. All parameters' classes stand side by side in vectors of 16.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

constexpr int64_t PIXELS = 784, CLASSES = 10, WIDTH = 16;
constexpr int64_t TOGETHER = 56;  // images whose scores are held at once

typedef float Vector __attribute__((vector_size(4 * WIDTH)));

struct Batch {
    const float* images;    // (images, PIXELS)
    const int64_t* rows;    // (records)
    const int64_t* labels;  // (records)
    const float* mask;      // (records)
    int64_t records;
};

// e^x for x at most 0, to two units; below -87 that of -87. What is no number stays none.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    const float whole = std::floor(x * 1.44269504f + 0.5f);
    const float rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return sum * power;
}

// One seat's work; VECTORS hold the classes of all copies, RECORDS and COLUMNS are at work at once.
template <int VECTORS, int RECORDS, int COLUMNS>
struct Seat {
    static_assert(TOGETHER % RECORDS == 0 && PIXELS % COLUMNS == 0, "tiles fill what they share");
    static constexpr int64_t LANES = VECTORS * WIDTH;

    int64_t copies;
    std::vector<Vector> weights, slopes;  // (PIXELS, VECTORS)
    Vector intercepts[VECTORS], sums[VECTORS], scores[TOGETHER * VECTORS];

    explicit Seat(int64_t count) : copies(count), weights(PIXELS * VECTORS), slopes(PIXELS * VECTORS) {}

    // Where the parameters of a lane begin in (copies, CLASSES x PIXELS + CLASSES).
    static int64_t begin(int64_t lane) {
        return lane / CLASSES * CLASSES * (PIXELS + 1) + lane % CLASSES * PIXELS;
    }

    static int64_t intercept(int64_t lane) {
        return lane / CLASSES * CLASSES * (PIXELS + 1) + CLASSES * PIXELS + lane % CLASSES;
    }

    void read(const float* parameters) {
        std::fill(weights.begin(), weights.end(), Vector{});
        std::fill(slopes.begin(), slopes.end(), Vector{});
        std::fill(intercepts, intercepts + VECTORS, Vector{});
        std::fill(sums, sums + VECTORS, Vector{});
        float* across = reinterpret_cast<float*>(weights.data());
        float* alone = reinterpret_cast<float*>(intercepts);
        for (int64_t j = 0; j < PIXELS; ++j)
            for (int64_t lane = 0; lane < copies * CLASSES; ++lane)
                across[j * LANES + lane] = parameters[begin(lane) + j];
        for (int64_t lane = 0; lane < copies * CLASSES; ++lane) alone[lane] = parameters[intercept(lane)];
    }

    void write(float* found) const {
        const float* across = reinterpret_cast<const float*>(slopes.data());
        const float* alone = reinterpret_cast<const float*>(sums);
        for (int64_t j = 0; j < PIXELS; ++j)
            for (int64_t lane = 0; lane < copies * CLASSES; ++lane)
                found[begin(lane) + j] = across[j * LANES + lane];
        for (int64_t lane = 0; lane < copies * CLASSES; ++lane) found[intercept(lane)] = alone[lane];
    }

    void add(const Batch& batch) {
        const float* images[TOGETHER];
        for (int64_t from = 0; from < batch.records; from += TOGETHER) {
            const int64_t here = std::min(TOGETHER, batch.records - from);
            // The last image stands for those that are missing; it counts once.
            for (int64_t r = 0; r < TOGETHER; ++r)
                images[r] = batch.images + batch.rows[from + std::min(r, here - 1)] * PIXELS;
            for (int64_t r = 0; r < TOGETHER; r += RECORDS) score(images + r, scores + r * VECTORS);
            for (int64_t r = 0; r < TOGETHER; ++r) {
                const float counts = r < here ? batch.mask[from + r] : 0.0f;
                part(scores + r * VECTORS, batch.labels[from + std::min(r, here - 1)], counts);
            }
            for (int64_t j = 0; j < PIXELS; j += COLUMNS) slope(images, j);
        }
    }

    void score(const float* const* images, Vector* found) const {
        Vector sum[RECORDS][VECTORS];
        for (int r = 0; r < RECORDS; ++r)
            for (int v = 0; v < VECTORS; ++v) sum[r][v] = intercepts[v];
        const Vector* weight = weights.data();
        for (int64_t j = 0; j < PIXELS; ++j, weight += VECTORS)
#pragma GCC unroll 16
            for (int r = 0; r < RECORDS; ++r)
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; ++v) sum[r][v] += images[r][j] * weight[v];
        for (int r = 0; r < RECORDS; ++r)
            for (int v = 0; v < VECTORS; ++v) found[r * VECTORS + v] = sum[r][v];
    }

    // Scores become probabilities less 1 at the label, and are added up.
    void part(Vector* found, int64_t label, float counts) {
        float lanes[LANES], scale[LANES];
        std::memcpy(lanes, found, sizeof lanes);
        for (int64_t at = 0; at < copies * CLASSES; at += CLASSES) {
            float top = -std::numeric_limits<float>::infinity();
            for (int64_t c = 0; c < CLASSES; ++c) top = lanes[at + c] > top ? lanes[at + c] : top;
            for (int64_t c = 0; c < CLASSES; ++c) lanes[at + c] -= top;
        }
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] = exponential(lanes[lane]);
        for (int64_t at = 0; at < copies * CLASSES; at += CLASSES) {
            float total = 0.0f;
            for (int64_t c = 0; c < CLASSES; ++c) total += lanes[at + c];
            for (int64_t c = 0; c < CLASSES; ++c) scale[at + c] = 1.0f / total;
        }
        for (int64_t lane = copies * CLASSES; lane < LANES; ++lane) scale[lane] = 0.0f;
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] *= scale[lane];
        for (int64_t at = 0; at < copies * CLASSES; at += CLASSES) lanes[at + label] -= 1.0f;
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] *= counts;
        std::memcpy(found, lanes, sizeof lanes);
        for (int v = 0; v < VECTORS; ++v) sums[v] += found[v];
    }

    void slope(const float* const* images, int64_t j) {
        Vector sum[COLUMNS][VECTORS];
        Vector* own = slopes.data() + j * VECTORS;
        for (int c = 0; c < COLUMNS; ++c)
            for (int v = 0; v < VECTORS; ++v) sum[c][v] = own[c * VECTORS + v];
        for (int64_t r = 0; r < TOGETHER; ++r) {
            const float* image = images[r] + j;
#pragma GCC unroll 28
            for (int c = 0; c < COLUMNS; ++c)
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; ++v) sum[c][v] += image[c] * scores[r * VECTORS + v];
        }
        for (int c = 0; c < COLUMNS; ++c)
            for (int v = 0; v < VECTORS; ++v) own[c * VECTORS + v] = sum[c][v];
    }
};

template <int VECTORS, int RECORDS, int COLUMNS>
void all(const Batch& first, const float* parameters, float* found, int64_t seats, int64_t copies) {
    const int64_t length = copies * CLASSES * (PIXELS + 1);
    Seat<VECTORS, RECORDS, COLUMNS> seat(copies);
    Batch batch = first;
    for (int64_t s = 0; s < seats; ++s) {
        seat.read(parameters + s * length);
        seat.add(batch);
        seat.write(found + s * length);
        batch.rows += batch.records, batch.labels += batch.records, batch.mask += batch.records;
    }
}

}  // namespace

// Shapes: images (any, 784), rows, labels and mask (seats, records), parameters and found (seats,
// copies, 7850), each copy its weights (10, 784) and its intercepts (10). At most 3 copies.
extern "C" void gradient_sums(const float* images, const int64_t* rows, const int64_t* labels,
                              const float* mask, const float* parameters, float* found,
                              int64_t seats, int64_t records, int64_t copies) {
    const Batch batch{images, rows, labels, mask, records};
    const int64_t vectors = (copies * CLASSES + WIDTH - 1) / WIDTH;
    if (vectors == 1) all<1, 14, 16>(batch, parameters, found, seats, copies);
    if (vectors == 2) all<2, 14, 8>(batch, parameters, found, seats, copies);
}
