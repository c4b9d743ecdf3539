// What softmax.cpp computes, on a processor that multiplies tiles of bfloat16 (Intel's AMX).
//
// Pixels are whole numbers to 255, which bfloat16 holds exactly. Weights, and what is summed up for
// the slopes, are cut into three such numbers, which hold all 24 bits; products are exact and sums
// are in single precision. So the result is that of softmax.cpp but for rounding.

#include <cstdint>

#ifdef __AMX_BF16__

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace {

constexpr int64_t PIXELS = 784, PADDED = 800, CLASSES = 10, WIDTH = 16, DEPTH = 32;
constexpr int64_t LANES = 2 * WIDTH;              // classes of all copies, side by side
constexpr int64_t BLOCKS = PADDED / DEPTH;        // of pixels in an image
constexpr int64_t TOGETHER = 128;                 // records at work at once
constexpr int64_t PIECES = 3, TILE = WIDTH * DEPTH;
constexpr float WHITE = 255.0f;

typedef uint16_t Half;  // the upper 16 bits of a float

struct Batch {
    const uint8_t* images;  // (images, PIXELS)
    const int64_t* rows;    // (records)
    const int64_t* labels;  // (records)
    const float* mask;      // (records)
    int64_t records;
};

// Cuts 16 numbers into three of 8 bits each that add up to them.
inline void cut(__m512 value, __m256i* pieces) {
    for (int64_t p = 0; p < PIECES; ++p) {
        pieces[p] = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value));
        value = _mm512_sub_ps(
            value, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(pieces[p]), 16)));
    }
}

// What is written is in memory from here on: the compiler does not know that tiles read and write it.
inline void in_memory() { asm volatile("" ::: "memory"); }

// e^x for x at most 0, to two units; below -87 that of -87. What is no number stays none.
inline __m512 exponential(__m512 x) {
    const __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_LT_OQ);
    x = _mm512_mask_mov_ps(x, low, _mm512_set1_ps(-87.0f));
    const __m512 whole = _mm512_roundscale_ps(
        _mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504f), _mm512_set1_ps(0.5f)),
        _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 rest = _mm512_fnmadd_ps(whole, _mm512_set1_ps(0.693359375f), x);
    rest = _mm512_fmadd_ps(whole, _mm512_set1_ps(2.12194440e-4f), rest);
    __m512 sum = _mm512_set1_ps(1.9875691500e-4f);
    for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                       5.0000001201e-1f})
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(next));
    sum = _mm512_fmadd_ps(_mm512_mul_ps(sum, rest), rest, _mm512_add_ps(rest, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(sum, whole);
}

inline void transpose(const float* from, float* to, int64_t step) {
    const __m512i across = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(WIDTH));
    for (int64_t i = 0; i < WIDTH; ++i)
        _mm512_storeu_ps(to + i * step, _mm512_i32gather_ps(across, from + i, 4));
}

// One seat's work. The first `copies` times CLASSES lanes are in use.
struct Seat {
    int64_t copies = 0;
    alignas(64) Half weights[BLOCKS][PIECES][2][TILE];         // as tiles: pairs of pixels x lanes
    alignas(64) float slopes[LANES][PADDED];
    alignas(64) float intercepts[LANES], sums[LANES];
    alignas(64) Half plain[TOGETHER][PADDED];                  // records x pixels
    alignas(64) Half paired[TOGETHER / 2][PADDED][2];          // pairs of records x pixels
    alignas(64) float scores[LANES][TOGETHER], found[4][WIDTH * WIDTH];
    alignas(64) Half apart[PIECES][LANES][TOGETHER];

    // Where the parameters of a lane begin in (copies, CLASSES x PIXELS + CLASSES).
    static int64_t begin(int64_t lane) {
        return lane / CLASSES * CLASSES * (PIXELS + 1) + lane % CLASSES * PIXELS;
    }

    static int64_t intercept(int64_t lane) {
        return lane / CLASSES * CLASSES * (PIXELS + 1) + CLASSES * PIXELS + lane % CLASSES;
    }

    int64_t used() const { return copies * CLASSES; }
    int64_t halves() const { return (used() + WIDTH - 1) / WIDTH; }

    // What lies beyond the pixels and the lanes in use is 0 and stays so.
    void clear(int64_t count) {
        std::memset(this, 0, sizeof *this);
        copies = count;
    }

    void read(const float* parameters) {
        std::memset(slopes, 0, sizeof slopes);
        std::memset(sums, 0, sizeof sums);
        const __m512 scale = _mm512_set1_ps(1.0f / WHITE);
        for (int64_t lane = 0; lane < used(); ++lane) {
            const float* own = parameters + begin(lane);
            intercepts[lane] = parameters[intercept(lane)];
            for (int64_t j = 0; j < PIXELS; j += WIDTH) {
                __m256i pieces[PIECES];
                cut(_mm512_mul_ps(_mm512_loadu_ps(own + j), scale), pieces);
                for (int64_t p = 0; p < PIECES; ++p) {
                    uint32_t pairs[WIDTH / 2];
                    std::memcpy(pairs, pieces + p, sizeof pairs);
                    Half* tile = weights[j / DEPTH][p][lane / WIDTH];
                    for (int64_t i = 0; i < WIDTH / 2; ++i)
                        std::memcpy(tile + (j % DEPTH / 2 + i) * DEPTH + lane % WIDTH * 2, pairs + i, 4);
                }
            }
        }
    }

    void write(float* result) const {
        const __m512 scale = _mm512_set1_ps(1.0f / WHITE);
        for (int64_t lane = 0; lane < used(); ++lane) {
            for (int64_t j = 0; j < PIXELS; j += WIDTH)
                _mm512_storeu_ps(result + begin(lane) + j,
                                 _mm512_mul_ps(_mm512_load_ps(slopes[lane] + j), scale));
            result[intercept(lane)] = sums[lane];
        }
    }

    void add(const Batch& batch) {
        for (int64_t from = 0; from < batch.records; from += TOGETHER) {
            const int64_t here = std::min(TOGETHER, batch.records - from);
            // The last record stands for those that are missing; it counts once.
            const int64_t filled = (here + DEPTH - 1) / DEPTH * DEPTH;
            for (int64_t r = 0; r < filled; r += 2) {
                const int64_t first = from + std::min(r, here - 1), second = from + std::min(r + 1, here - 1);
                pair(batch, first, second, r);
            }
            in_memory();
            for (int64_t r = 0; r < filled; r += DEPTH) score(r);
            for (int64_t r = 0; r < filled; r += WIDTH) part(batch, from, r, here);
            in_memory();
            for (int64_t j = 0; j < PADDED; j += DEPTH) slope(j, filled);
            in_memory();
        }
    }

    // Two images' pixels in both orders.
    void pair(const Batch& batch, int64_t first, int64_t second, int64_t r) {
        const uint8_t* images[2] = {batch.images + batch.rows[first] * PIXELS,
                                    batch.images + batch.rows[second] * PIXELS};
        if (const int64_t next = first + TOGETHER; next + 1 < batch.records)
            for (int64_t i = 0; i < 2; ++i)
                for (int64_t line = 0; line < PIXELS; line += 64)
                    _mm_prefetch(batch.images + batch.rows[next + i] * PIXELS + line, _MM_HINT_T1);
        for (int64_t j = 0; j < PIXELS; j += WIDTH) {
            __m512i bits[2];
            for (int64_t i = 0; i < 2; ++i) {
                const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(images[i] + j));
                bits[i] = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
                _mm256_store_si256(reinterpret_cast<__m256i*>(plain[r + i] + j),
                                   _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits[i], 16)));
            }
            // Numbers to 255 have nothing in their lower halves.
            _mm512_store_si512(paired[r / 2][j], _mm512_or_si512(_mm512_srli_epi32(bits[0], 16), bits[1]));
        }
    }

    void score(int64_t r) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        const bool both = halves() > 1;
        for (int64_t b = 0; b < BLOCKS; ++b) {
            _tile_loadd(4, plain[r] + b * DEPTH, sizeof plain[0]);
            _tile_loadd(5, plain[r + WIDTH] + b * DEPTH, sizeof plain[0]);
            for (int64_t p = 0; p < PIECES; ++p) {
                _tile_loadd(6, weights[b][p][0], 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 5, 6);
                if (!both) continue;
                _tile_loadd(7, weights[b][p][1], 64);
                _tile_dpbf16ps(2, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, found[0], 64);
        _tile_stored(1, found[1], 64);
        _tile_stored(2, found[2], 64);
        _tile_stored(3, found[3], 64);
        in_memory();
        for (int64_t i = 0; i < 4; ++i)
            transpose(found[i], scores[i / 2 * WIDTH] + r + i % 2 * WIDTH, TOGETHER);
    }

    // 16 records' scores become probabilities less 1 at the label, and are added up.
    void part(const Batch& batch, int64_t from, int64_t r, int64_t here) {
        int32_t labels[WIDTH];
        float mask[WIDTH];
        for (int64_t i = 0; i < WIDTH; ++i) {
            labels[i] = batch.labels[from + std::min(r + i, here - 1)];
            mask[i] = r + i < here ? batch.mask[from + r + i] : 0.0f;
        }
        const __m512i label = _mm512_loadu_si512(labels);
        const __m512 counts = _mm512_loadu_ps(mask);
        for (int64_t at = 0; at < used(); at += CLASSES) {
            __m512 lanes[CLASSES], top = _mm512_set1_ps(-__builtin_inff()), total = _mm512_setzero_ps();
            for (int64_t c = 0; c < CLASSES; ++c) {
                lanes[c] = _mm512_add_ps(_mm512_load_ps(scores[at + c] + r), _mm512_set1_ps(intercepts[at + c]));
                top = _mm512_max_ps(lanes[c], top);
            }
            for (int64_t c = 0; c < CLASSES; ++c) {
                lanes[c] = exponential(_mm512_sub_ps(lanes[c], top));
                total = _mm512_add_ps(total, lanes[c]);
            }
            const __m512 scale = _mm512_div_ps(_mm512_set1_ps(1.0f), total);
            for (int64_t c = 0; c < CLASSES; ++c) {
                __m512 own = _mm512_mul_ps(lanes[c], scale);
                const __mmask16 is = _mm512_cmpeq_epi32_mask(label, _mm512_set1_epi32(c));
                own = _mm512_mask_sub_ps(own, is, own, _mm512_set1_ps(1.0f));
                own = _mm512_mul_ps(own, counts);
                sums[at + c] += _mm512_reduce_add_ps(own);
                __m256i pieces[PIECES];
                cut(own, pieces);
                for (int64_t p = 0; p < PIECES; ++p)
                    _mm256_store_si256(reinterpret_cast<__m256i*>(apart[p][at + c] + r), pieces[p]);
            }
        }
    }

    void slope(int64_t j, int64_t filled) {
        const bool both = halves() > 1;
        _tile_loadd(0, slopes[0] + j, sizeof slopes[0]);
        _tile_loadd(1, slopes[0] + j + WIDTH, sizeof slopes[0]);
        _tile_loadd(2, slopes[WIDTH] + j, sizeof slopes[0]);
        _tile_loadd(3, slopes[WIDTH] + j + WIDTH, sizeof slopes[0]);
        for (int64_t r = 0; r < filled; r += DEPTH) {
            _tile_loadd(6, paired[r / 2][j], sizeof paired[0]);
            _tile_loadd(7, paired[r / 2][j + WIDTH], sizeof paired[0]);
            for (int64_t p = 0; p < PIECES; ++p) {
                _tile_loadd(4, apart[p][0] + r, sizeof apart[0][0]);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                if (!both) continue;
                _tile_loadd(5, apart[p][WIDTH] + r, sizeof apart[0][0]);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, slopes[0] + j, sizeof slopes[0]);
        _tile_stored(1, slopes[0] + j + WIDTH, sizeof slopes[0]);
        _tile_stored(2, slopes[WIDTH] + j, sizeof slopes[0]);
        _tile_stored(3, slopes[WIDTH] + j + WIDTH, sizeof slopes[0]);
    }
};

}  // namespace

// Whether the processor has such tiles and the system lets this process use them.
extern "C" int ready() {
    constexpr long ASK_FOR = 0x1023, TILES = 18;
    return __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, ASK_FOR, TILES) == 0;
}

// Shapes: images (any, 784), pixels times 255; rows, labels and mask (seats, records), parameters
// and found (seats, copies, 7850), each copy its weights (10, 784) and its intercepts (10). At most
// 3 copies.
extern "C" void gradient_sums(const uint8_t* images, const int64_t* rows, const int64_t* labels,
                              const float* mask, const float* parameters, float* found,
                              int64_t seats, int64_t records, int64_t copies) {
    const int64_t length = copies * CLASSES * (PIXELS + 1);
    alignas(64) uint8_t shapes[64] = {1};
    for (int64_t tile = 0; tile < 8; ++tile) shapes[16 + 2 * tile] = 64, shapes[48 + tile] = WIDTH;
    _tile_loadconfig(shapes);
    static thread_local Seat seat;  // large: not for the stack
    if (seat.copies != copies) seat.clear(copies);
    Batch batch{images, rows, labels, mask, records};
    for (int64_t s = 0; s < seats; ++s) {
        seat.read(parameters + s * length);
        seat.add(batch);
        seat.write(found + s * length);
        batch.rows += records, batch.labels += records, batch.mask += records;
    }
    _tile_release();
}

#else

extern "C" int ready() { return 0; }

#endif
