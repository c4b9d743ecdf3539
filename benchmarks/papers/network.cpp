// Local training of the paper's network, 28 x 28 images, in single precision: one client after
// another, each alone, so that no client's arithmetic depends on another's.
//
// The second convolution, four fifths of the arithmetic, is Winograd's: tiles of 4 x 4 outputs by
// a 5 x 5 kernel are products of 8 x 8 numbers, 64 instead of 400 multiplications. The wide layer's
// weight stays at the client's start, and what it has lost is kept as outer products. Activations
// are channels last; within a flat vector of parameters the order is torch's.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace {

typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Choice __attribute__((vector_size(64), aligned(4), may_alias));

constexpr int kLanes = 16, kSide = 28, kPadded = 32, kTaps = 25, kFirst = 32, kSecond = 64;
constexpr int kPooled = 14, kTiled = 20, kCells = 49, kWide = kSecond * kCells, kHidden = 512;
constexpr int kClasses = 10, kPoints = 64, kTiles = 16, kImages = 2, kAhead = 64;
// Rows of what Winograd multiplies, a little apart: else all 64 points share a line of the cache.
constexpr int kSkew = 16, kIn = kImages * kTiles * kFirst + kSkew;
constexpr int kOut = kImages * kTiles * kSecond + kSkew, kKernel = kFirst * kSecond + kSkew;

constexpr long kBeforeWide = kFirst * (kTaps + 1) + kSecond * (kFirst * kTaps + 1);
constexpr long kParameters = kBeforeWide + kHidden * (kWide + 1) + kClasses * (kHidden + 1);

inline Lanes load(const float *from) { return *reinterpret_cast<const Lanes *>(from); }
inline void store(float *to, Lanes value) { *reinterpret_cast<Lanes *>(to) = value; }
inline float sum(Lanes value) {
  float total = 0.0f;
  for (int i = 0; i < kLanes; ++i) total += value[i];
  return total;
}

// ---- Products --------------------------------------------------------------------------------

// C[m][n] (+)= sum over k of A(m, k) B[k][n], for `Rows` rows of C and a multiple of 32 columns.
// Of what does not fit near the processor, B is fetched `Ahead` numbers before it is needed.
template <int Rows, bool Add, int Ahead>
void rows_of(int N, int K, const float *A, long am, long ak, const float *B, long bk, float *C,
             long cm) {
  for (int n = 0; n < N; n += 2 * kLanes) {
    Lanes total[Rows][2];
    for (int m = 0; m < Rows; ++m)
      for (int h = 0; h < 2; ++h)
        total[m][h] = Add ? load(C + m * cm + n + h * kLanes) : Lanes{};
    for (int k = 0; k < K; ++k) {
      Lanes left = load(B + k * bk + n), right = load(B + k * bk + n + kLanes);
      if constexpr (Ahead > 0) {
        __builtin_prefetch(B + k * bk + n + Ahead);
        __builtin_prefetch(B + k * bk + n + Ahead + kLanes);
      }
      for (int m = 0; m < Rows; ++m) {
        float factor = A[m * am + k * ak];
        total[m][0] += factor * left;
        total[m][1] += factor * right;
      }
    }
    for (int m = 0; m < Rows; ++m)
      for (int h = 0; h < 2; ++h) store(C + m * cm + n + h * kLanes, total[m][h]);
  }
}

template <int Rows, bool Add, int Ahead>
void last_rows(int rows, int N, int K, const float *A, long am, long ak, const float *B, long bk,
               float *C, long cm) {
  if (rows == Rows)
    rows_of<Rows, Add, Ahead>(N, K, A, am, ak, B, bk, C, cm);
  else if constexpr (Rows > 1)
    last_rows<Rows - 1, Add, Ahead>(rows, N, K, A, am, ak, B, bk, C, cm);
}

template <bool Add, int Ahead = 0>
void product(int M, int N, int K, const float *A, long am, long ak, const float *B, long bk,
             float *C, long cm) {
  int m = 0;
  for (; M - m > 12; m += 8)
    rows_of<8, Add, Ahead>(N, K, A + m * am, am, ak, B, bk, C + m * cm, cm);
  if (m < M) last_rows<12, Add, Ahead>(M - m, N, K, A + m * am, am, ak, B, bk, C + m * cm, cm);
}

// C[m][n] = sum over k of A[m][k] B[n][k], for `Rows` x `Columns` of them; K a multiple of 16.
template <int Rows, int Columns>
void dots_of(int K, const float *A, long am, const float *B, long bn, float *C, long cm) {
  Lanes total[Rows][Columns] = {};
  for (int k = 0; k < K; k += kLanes) {
    Lanes across[Columns];
    for (int n = 0; n < Columns; ++n) {
      across[n] = load(B + n * bn + k);
      // The columns that come next: each is too short for the processor to foresee.
      __builtin_prefetch(B + (n + Columns) * bn + k);
    }
    for (int m = 0; m < Rows; ++m) {
      Lanes own = load(A + m * am + k);
      for (int n = 0; n < Columns; ++n) total[m][n] += own * across[n];
    }
  }
  for (int m = 0; m < Rows; ++m)
    for (int n = 0; n < Columns; ++n) C[m * cm + n] = sum(total[m][n]);
}

template <int Columns>
void dots_column(int M, int K, const float *A, long am, const float *B, long bn, float *C,
                 long cm) {
  int m = 0;
  for (; M - m >= 5; m += 5) dots_of<5, Columns>(K, A + m * am, am, B, bn, C + m * cm, cm);
  for (; m < M; ++m) dots_of<1, Columns>(K, A + m * am, am, B, bn, C + m * cm, cm);
}

void dots(int M, int N, int K, const float *A, long am, const float *B, long bn, float *C,
          long cm) {
  int n = 0;
  for (; N - n >= 4; n += 4) dots_column<4>(M, K, A, am, B + n * bn, bn, C + n, cm);
  for (; n < N; ++n) dots_column<1>(M, K, A, am, B + n * bn, bn, C + n, cm);
}

// ---- Winograd's F(4 x 4, 5 x 5), points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity -----------------

constexpr float kInput[8][8] = {
    {-1, 0, 5.25f, 0, -5.25f, 0, 1, 0},       {0, 1, 1, -4.25f, -4.25f, 1, 1, 0},
    {0, -1, 1, 4.25f, -4.25f, -1, 1, 0},      {0, .5f, .25f, -2.5f, -1.25f, 2, 1, 0},
    {0, -.5f, .25f, 2.5f, -1.25f, -2, 1, 0},  {0, 2, 4, -2.5f, -5, .5f, 1, 0},
    {0, -2, 4, 2.5f, -5, -.5f, 1, 0},         {0, -1, 0, 5.25f, 0, -5.25f, 0, 1}};
constexpr float n2 = 2.0f / 9, o1 = 1.0f / 90, f1 = 1.0f / 45;
constexpr float kWeight[8][5] = {{-1, 0, 0, 0, 0},
                                 {-n2, -n2, -n2, -n2, -n2},
                                 {-n2, n2, -n2, n2, -n2},
                                 {o1, f1, 2 * f1, 4 * f1, 8 * f1},
                                 {o1, -f1, 2 * f1, -4 * f1, 8 * f1},
                                 {32 * f1, 16 * f1, 8 * f1, 4 * f1, 2 * f1},
                                 {32 * f1, -16 * f1, 8 * f1, -4 * f1, 2 * f1},
                                 {0, 0, 0, 0, 1}};
constexpr float kOutput[4][8] = {{1, 1, 1, 1, 1, 1, 1, 0},
                                 {0, 1, -1, 2, -2, .5f, -.5f, 0},
                                 {0, 1, 1, 4, 4, .25f, .25f, 0},
                                 {0, 1, -1, 8, -8, .125f, -.125f, 1}};

// out = T in T^t for a constant matrix T of R x S, or its transpose where `Turned`.
template <int R, int S, bool Turned, int Q, int P>
inline __attribute__((always_inline)) void both_sides(const float (&T)[Q][P],
                                                      const Lanes (&in)[S][S],
                                                      Lanes (&out)[R][R]) {
  Lanes half[R][S];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < S; ++j) {
      Lanes total = {};
#pragma GCC unroll 8
      for (int k = 0; k < S; ++k) {
        const float factor = Turned ? T[k][i] : T[i][k];
        if (factor != 0.0f) total += factor * in[k][j];
      }
      half[i][j] = total;
    }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < R; ++j) {
      Lanes total = {};
#pragma GCC unroll 8
      for (int k = 0; k < S; ++k) {
        const float factor = Turned ? T[k][j] : T[j][k];
        if (factor != 0.0f) total += factor * half[i][k];
      }
      out[i][j] = total;
    }
}

// Kernels at Winograd's points: in[25][rows][columns] to out[64][rows][columns], `columns` fast.
void kernels_at_points(const float *in, float *out) {
  for (int at = 0; at < kFirst * kSecond; at += kLanes) {
    Lanes taps[5][5], points[8][8];
    for (int i = 0; i < kTaps; ++i) taps[i / 5][i % 5] = load(in + i * kFirst * kSecond + at);
    both_sides<8, 5, false>(kWeight, taps, points);
    for (int i = 0; i < kPoints; ++i) store(out + i * kKernel + at, points[i / 8][i % 8]);
  }
}

// The transpose: slopes at the points to slopes of the kernels.
void kernels_of_points(const float *in, float *out) {
  for (int at = 0; at < kFirst * kSecond; at += kLanes) {
    Lanes taps[5][5], points[8][8];
    for (int i = 0; i < kPoints; ++i) points[i / 8][i % 8] = load(in + i * kKernel + at);
    both_sides<5, 8, true>(kWeight, points, taps);
    for (int i = 0; i < kTaps; ++i) store(out + i * kFirst * kSecond + at, taps[i / 5][i % 5]);
  }
}

// ---- Layers ----------------------------------------------------------------------------------

// What is trained, in the order of the layers, with channels last.
struct Parameters {
  std::vector<float> first, first_bias, second, second_bias, hidden, hidden_bias, last, last_bias;
  Parameters()
      : first(kTaps * kFirst), first_bias(kFirst), second(kTaps * kFirst * kSecond),
        second_bias(kSecond), hidden(kHidden * kWide), hidden_bias(kHidden),
        last(kClasses * kHidden), last_bias(kClasses) {}
};

// Calls move(flat index, part, index) for every parameter, in torch's order; for the wide weight's
// where `All`.
template <bool All, class Move> void each(Parameters &own, Move move) {
  long at = 0;
  for (int c = 0; c < kFirst; ++c)
    for (int t = 0; t < kTaps; ++t) move(at++, own.first, t * kFirst + c);
  for (int c = 0; c < kFirst; ++c) move(at++, own.first_bias, c);
  for (int o = 0; o < kSecond; ++o)
    for (int c = 0; c < kFirst; ++c)
      for (int t = 0; t < kTaps; ++t) move(at++, own.second, (t * kFirst + c) * kSecond + o);
  for (int o = 0; o < kSecond; ++o) move(at++, own.second_bias, o);
  if constexpr (All)
    for (int o = 0; o < kHidden; ++o)
      for (int c = 0; c < kSecond; ++c)
        for (int p = 0; p < kCells; ++p) move(at++, own.hidden, o * kWide + p * kSecond + c);
  else
    at += kHidden * kWide;
  for (int o = 0; o < kHidden; ++o) move(at++, own.hidden_bias, o);
  for (int i = 0; i < kClasses * kHidden; ++i) move(at++, own.last, i);
  for (int i = 0; i < kClasses; ++i) move(at++, own.last_bias, i);
}

// The largest of four, the first of equals, as torch's pooling has it; then ReLU, which keeps NaN.
inline Lanes pooled(const Lanes (&four)[4], Choice &which) {
  Lanes most = four[0];
  which = Choice{};
  for (int q = 1; q < 4; ++q) {
    Choice more = (four[q] > most) | (four[q] != four[q]);
    most = more ? four[q] : most;
    which = more ? Choice{} + q : which;
  }
  // A slope goes nowhere where the output is 0.
  which = most <= Lanes{} ? Choice{} - 1 : which;
  return most < Lanes{} ? Lanes{} : most;
}

// All that a batch leaves behind on its way up.
struct Batch {
  int images;
  std::vector<float> inputs, first, second, hidden, scores, at_points, products, slopes;
  std::vector<int32_t> first_choice, second_choice;
  explicit Batch(int most)
      : images(0), inputs(most * kPadded * kPadded), first(most * kTiled * kTiled * kFirst),
        second(most * kWide), hidden(most * kHidden), scores(most * kClasses),
        at_points(kPoints * kIn), products(kPoints * kOut), slopes(kPoints * kIn),
        first_choice(most * kPooled * kPooled * kFirst), second_choice(most * kWide) {}
};

void first_up(const Parameters &own, Batch &batch) {
  const Lanes bias[2] = {load(own.first_bias.data()), load(own.first_bias.data() + kLanes)};
  for (int image = 0; image < batch.images; ++image)
    for (int y = 0; y < kPooled; ++y)
      for (int x = 0; x < kPooled; x += 2) {
        const float *in = &batch.inputs[(image * kPadded + 2 * y) * kPadded + 2 * x];
        Lanes total[2][4][2] = {};
        for (int t = 0; t < kTaps; ++t) {
          const float *taps = &own.first[t * kFirst], *from = in + (t / 5) * kPadded + t % 5;
          Lanes left = load(taps), right = load(taps + kLanes);
          for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j) {
              total[i][j][0] += from[i * kPadded + j] * left;
              total[i][j][1] += from[i * kPadded + j] * right;
            }
        }
        for (int cell = 0; cell < 2; ++cell)
          for (int h = 0; h < 2; ++h) {
            Lanes four[4];
            for (int q = 0; q < 4; ++q) four[q] = total[q / 2][2 * cell + q % 2][h] + bias[h];
            Choice which;
            long at = ((image * kTiled + y + 2) * kTiled + x + cell + 2) * kFirst + h * kLanes;
            store(&batch.first[at], pooled(four, which));
            at = ((image * kPooled + y) * kPooled + x + cell) * kFirst + h * kLanes;
            *reinterpret_cast<Choice *>(&batch.first_choice[at]) = which;
          }
      }
}

// Winograd's points of the second layer's inputs, of images from `begin` to `end`.
void points_of_inputs(Batch &batch, int begin, int end) {
  for (int image = begin; image < end; ++image)
    for (int tile = 0; tile < kTiles; ++tile)
      for (int c = 0; c < kFirst; c += kLanes) {
        const int row = image * kTiled + tile / 4 * 4, column = tile % 4 * 4;
        Lanes in[8][8], points[8][8];
        for (int i = 0; i < 8; ++i)
          for (int j = 0; j < 8; ++j)
            in[i][j] = load(&batch.first[((row + i) * kTiled + column + j) * kFirst + c]);
        both_sides<8, 8, false>(kInput, in, points);
        float *to = &batch.at_points[((image - begin) * kTiles + tile) * kFirst + c];
        for (int i = 0; i < kPoints; ++i) store(to + i * kIn, points[i / 8][i % 8]);
      }
}

void second_up(const Parameters &own, const std::vector<float> &kernels, Batch &batch) {
  for (int begin = 0; begin < batch.images; begin += kImages) {
    const int end = std::min(begin + kImages, batch.images), rows = (end - begin) * kTiles;
    points_of_inputs(batch, begin, end);
    for (int i = 0; i < kPoints; ++i)
      product<false>(rows, kSecond, kFirst, &batch.at_points[i * kIn], kFirst, 1,
                     &kernels[i * kKernel], kSecond, &batch.products[i * kOut], kSecond);
    for (int row = 0; row < rows; ++row)
      for (int c = 0; c < kSecond; c += kLanes) {
        Lanes points[8][8], out[4][4];
        const Lanes bias = load(&own.second_bias[c]);
        for (int i = 0; i < kPoints; ++i)
          points[i / 8][i % 8] = load(&batch.products[i * kOut + row * kSecond + c]);
        both_sides<4, 8, false>(kOutput, points, out);
        const int tile = row % kTiles, image = begin + row / kTiles;
        for (int cell = 0; cell < 4; ++cell) {
          const int y = tile / 4 * 2 + cell / 2, x = tile % 4 * 2 + cell % 2;
          if (y >= 7 || x >= 7) continue;
          Lanes four[4];
          for (int q = 0; q < 4; ++q)
            four[q] = out[cell / 2 * 2 + q / 2][cell % 2 * 2 + q % 2] + bias;
          Choice which;
          const long at = image * kWide + (y * 7 + x) * kSecond + c;
          store(&batch.second[at], pooled(four, which));
          *reinterpret_cast<Choice *>(&batch.second_choice[at]) = which;
        }
      }
  }
}

// Slopes at Winograd's points of the second layer's outputs, from those of what was pooled.
void points_of_slopes(Batch &batch, const float *slopes, int begin, int end) {
  for (int image = begin; image < end; ++image)
    for (int tile = 0; tile < kTiles; ++tile)
      for (int c = 0; c < kSecond; c += kLanes) {
        Lanes out[4][4] = {}, points[8][8];
        for (int cell = 0; cell < 4; ++cell) {
          const int y = tile / 4 * 2 + cell / 2, x = tile % 4 * 2 + cell % 2;
          if (y >= 7 || x >= 7) continue;
          const long at = image * kWide + (y * 7 + x) * kSecond + c;
          const Lanes slope = load(slopes + at);
          const Choice which = *reinterpret_cast<const Choice *>(&batch.second_choice[at]);
          for (int q = 0; q < 4; ++q)
            out[cell / 2 * 2 + q / 2][cell % 2 * 2 + q % 2] = which == q ? slope : Lanes{};
        }
        both_sides<8, 4, true>(kOutput, out, points);
        float *to = &batch.products[((image - begin) * kTiles + tile) * kSecond + c];
        for (int i = 0; i < kPoints; ++i) store(to + i * kOut, points[i / 8][i % 8]);
      }
}

// Slopes of the second layer's inputs, added up over the tiles that share them.
void inputs_of_points(const Batch &batch, float *below, int begin, int end) {
  for (int image = begin; image < end; ++image)
    for (int tile = 0; tile < kTiles; ++tile)
      for (int c = 0; c < kFirst; c += kLanes) {
        Lanes points[8][8], in[8][8];
        const float *from = &batch.slopes[((image - begin) * kTiles + tile) * kFirst + c];
        for (int i = 0; i < kPoints; ++i) points[i / 8][i % 8] = load(from + i * kIn);
        both_sides<8, 8, true>(kInput, points, in);
        const int row = image * kTiled + tile / 4 * 4, column = tile % 4 * 4;
        for (int i = 0; i < 8; ++i)
          for (int j = 0; j < 8; ++j) {
            float *to = below + ((row + i) * kTiled + column + j) * kFirst + c;
            store(to, load(to) + in[i][j]);
          }
      }
}

void first_down(const Batch &batch, const float *below, Parameters &slope) {
  for (int h = 0; h < kFirst; h += kLanes) {
    Lanes taps[kTaps] = {}, bias = {};
    for (int image = 0; image < batch.images; ++image)
      for (int y = 0; y < kPooled; ++y)
        for (int x = 0; x < kPooled; ++x) {
          const long at = ((image * kPooled + y) * kPooled + x) * kFirst + h;
          const Choice which = *reinterpret_cast<const Choice *>(&batch.first_choice[at]);
          const Lanes from =
              load(below + ((image * kTiled + y + 2) * kTiled + x + 2) * kFirst + h);
          bias += which >= 0 ? from : Lanes{};
          for (int q = 0; q < 4; ++q) {
            const Lanes own = which == q ? from : Lanes{};
            const float *in = &batch.inputs[(image * kPadded + 2 * y + q / 2) * kPadded + 2 * x +
                                            q % 2];
#pragma GCC unroll 25
            for (int t = 0; t < kTaps; ++t) taps[t] += in[t / 5 * kPadded + t % 5] * own;
          }
        }
    for (int t = 0; t < kTaps; ++t) store(&slope.first[t * kFirst + h], taps[t]);
    store(&slope.first_bias[h], bias);
  }
}

// ---- Training --------------------------------------------------------------------------------

// The wide layer's weight as it was at the client's start, less outer products; or, where those
// would be more than the weight itself, written at every step.
struct Wide {
  std::vector<float> lost, speed, velocity, gram, inputs, slopes, scaled;
  bool written;
  int known = 0;
  // Of all a client's records, `width` at most in a step.
  Wide(long records, long width, bool written)
      : lost(written ? 0 : records), speed(lost), velocity(written ? kHidden * kWide : 0),
        gram(width * lost.size()), written(written) {
    inputs.resize(kWide * lost.size());
    slopes.resize(kHidden * lost.size());
    scaled.resize(kHidden * lost.size());
  }

  void rest() {
    known = 0;
    std::fill(velocity.begin(), velocity.end(), 0.0f);
  }

  void up(const std::vector<float> &weight, const Batch &batch, float *to) {
    const int n = batch.images;
    dots(n, kHidden, kWide, batch.second.data(), kWide, weight.data(), kWide, to, kHidden);
    if (!known) return;
    dots(n, known, kWide, batch.second.data(), kWide, inputs.data(), kWide, gram.data(), known);
    less(n);
    product<true>(n, kHidden, known, gram.data(), known, 1, slopes.data(), kHidden, to, kHidden);
  }

  void down(const std::vector<float> &weight, const float *slope, int n, float *to) {
    std::fill(to, to + n * kWide, 0.0f);
    // Sixteen rows of the weight at a time: each is then read once, in order.
    for (int k = 0; k < kHidden; k += 16)
      product<true, kAhead>(n, kWide, 16, slope + k, kHidden, 1, &weight[long(k) * kWide], kWide,
                           to, kWide);
    if (!known) return;
    dots(n, known, kHidden, slope, kHidden, slopes.data(), kHidden, gram.data(), known);
    less(n);
    product<true>(n, kWide, known, gram.data(), known, 1, inputs.data(), kWide, to, kWide);
  }

  void less(int n) {
    for (int m = 0; m < n; ++m)
      for (int k = 0; k < known; ++k) gram[m * known + k] *= -lost[k];
  }

  void step(std::vector<float> &weight, const Batch &batch, const float *slope, float rate,
            float momentum) {
    const int n = batch.images;
    if (written) return write(weight, batch, slope, rate, momentum);
    std::copy_n(batch.second.data(), n * kWide, &inputs[long(known) * kWide]);
    std::copy_n(slope, n * kHidden, &slopes[long(known) * kHidden]);
    for (int k = 0; k < known; ++k) speed[k] *= momentum;
    for (int k = known; k < known + n; ++k) speed[k] = 1.0f, lost[k] = 0.0f;
    known += n;
    for (int k = 0; k < known; ++k) lost[k] += rate * speed[k];
  }

  void write(std::vector<float> &weight, const Batch &batch, const float *slope, float rate,
             float momentum) {
    for (int o = 0; o < kHidden; o += 4)
      for (int at = 0; at < kWide; at += kLanes) {
        Lanes moved[4];
        for (int r = 0; r < 4; ++r)
          moved[r] = momentum * load(&velocity[long(o + r) * kWide + at]);
        for (int k = 0; k < batch.images; ++k) {
          const Lanes in = load(&batch.second[k * kWide + at]);
          for (int r = 0; r < 4; ++r) moved[r] += slope[k * kHidden + o + r] * in;
        }
        for (int r = 0; r < 4; ++r) {
          float *to = &weight[long(o + r) * kWide + at];
          store(&velocity[long(o + r) * kWide + at], moved[r]);
          store(to, load(to) - rate * moved[r]);
        }
      }
  }

  // What the weight has lost, in torch's order of its columns, into `to`.
  void total(float *to) {
    std::vector<float> panel(known * 2 * kLanes);
    for (int k = 0; k < known; ++k)
      for (int o = 0; o < kHidden; ++o) scaled[k * kHidden + o] = slopes[k * kHidden + o] * lost[k];
    for (int at = 0; at < kWide; at += 2 * kLanes) {
      for (int k = 0; k < known; ++k)
        for (int i = 0; i < 2 * kLanes; ++i) {
          const int column = at + i;
          panel[k * 2 * kLanes + i] =
              inputs[long(k) * kWide + column % kCells * kSecond + column / kCells];
        }
      product<false>(kHidden, 2 * kLanes, known, scaled.data(), 1, kHidden, panel.data(),
                     2 * kLanes, to + at, kWide);
    }
  }
};

void descend(std::vector<float> &values, std::vector<float> &velocity,
             const std::vector<float> &slope, float rate, float momentum) {
  for (size_t i = 0; i < values.size(); ++i) {
    velocity[i] = momentum * velocity[i] + slope[i];
    values[i] -= rate * velocity[i];
  }
}

// Of what the loss takes the logarithm: of nothing, the scores being what it is given; of the
// label's probability; of every probability.
enum : int64_t { kNone, kOfLabel, kOfEvery };

class Network {
public:
  explicit Network(int most, int64_t logarithms = kNone)
      : logarithms_(logarithms), batch_(most), kernels_(kPoints * kKernel), turned_(kPoints * kKernel),
        turned_taps_(kTaps * kFirst * kSecond), gathered_(kPoints * kKernel),
        hidden_slope_(most * kHidden), wide_slope_(most * kWide),
        below_(most * kTiled * kTiled * kFirst) {}

  Parameters own, velocity, slope;

  template <bool All> void begin(const float *start) {
    each<All>(own, [&](long at, std::vector<float> &part, long i) { part[i] = start[at]; });
    each<false>(velocity, [&](long, std::vector<float> &part, long i) { part[i] = 0.0f; });
  }

  void take(const float *features, const int64_t *rows, int images) {
    batch_.images = images;
    for (int i = 0; i < images; ++i)
      for (int y = 0; y < kSide; ++y)
        std::copy_n(features + rows[i] * kSide * kSide + y * kSide, kSide,
                    &batch_.inputs[(i * kPadded + y + 2) * kPadded + 2]);
  }

  const float *up(Wide &wide) {
    kernels_at_points(own.second.data(), kernels_.data());
    first_up(own, batch_);
    second_up(own, kernels_, batch_);
    wide.up(own.hidden, batch_, batch_.hidden.data());
    for (int m = 0; m < batch_.images; ++m)
      for (int i = 0; i < kHidden; ++i) {
        float &value = batch_.hidden[m * kHidden + i];
        value += own.hidden_bias[i];
        value = value < 0.0f ? 0.0f : value;
      }
    dots(batch_.images, kClasses, kHidden, batch_.hidden.data(), kHidden, own.last.data(),
         kHidden, batch_.scores.data(), kClasses);
    for (int m = 0; m < batch_.images; ++m)
      for (int i = 0; i < kClasses; ++i) batch_.scores[m * kClasses + i] += own.last_bias[i];
    return batch_.scores.data();
  }

  void step(Wide &wide, const int64_t *labels, const int64_t *rows, float rate, float momentum) {
    up(wide);
    softmax(labels, rows);
    last_down();
    wide.down(own.hidden, hidden_slope_.data(), batch_.images, wide_slope_.data());
    wide.step(own.hidden, batch_, hidden_slope_.data(), rate, momentum);
    second_down();
    first_down(batch_, below_.data(), slope);
    descend(own.first, velocity.first, slope.first, rate, momentum);
    descend(own.first_bias, velocity.first_bias, slope.first_bias, rate, momentum);
    descend(own.second, velocity.second, slope.second, rate, momentum);
    descend(own.second_bias, velocity.second_bias, slope.second_bias, rate, momentum);
    descend(own.hidden_bias, velocity.hidden_bias, slope.hidden_bias, rate, momentum);
    descend(own.last, velocity.last, slope.last, rate, momentum);
    descend(own.last_bias, velocity.last_bias, slope.last_bias, rate, momentum);
  }

private:
  // The slope of the mean cross-entropy in the scores takes their place.
  void softmax(const int64_t *labels, const int64_t *rows) {
    for (int m = 0; m < batch_.images; ++m) {
      float *scores = &batch_.scores[m * kClasses], total = 0.0f;
      const float most = *std::max_element(scores, scores + kClasses);
      for (int i = 0; i < kClasses; ++i) total += scores[i] = std::exp(scores[i] - most);
      for (int i = 0; i < kClasses; ++i) scores[i] /= total;
      const bool lost = logarithms_ != kNone && no_slope(scores, labels[rows[m]]);
      for (int i = 0; i < kClasses; ++i)
        scores[i] = lost ? NAN : (scores[i] - (i == labels[rows[m]])) / batch_.images;
    }
  }

  // Whether the logarithm has no slope in single precision: infinity at the label where that is
  // next to 0; where it is taken of every probability, 0 / 0 at any that is 0.
  bool no_slope(const float *own, int64_t label) const {
    const float least = *std::min_element(own, own + kClasses);
    const bool any = logarithms_ == kOfEvery && least == 0.0f;
    return any || std::isinf(1.0f / batch_.images / own[label]);
  }

  void last_down() {
    const int n = batch_.images;
    product<false>(kClasses, kHidden, n, batch_.scores.data(), 1, kClasses, batch_.hidden.data(),
                   kHidden, slope.last.data(), kHidden);
    product<false>(n, kHidden, kClasses, batch_.scores.data(), kClasses, 1, own.last.data(),
                   kHidden, hidden_slope_.data(), kHidden);
    std::fill(slope.last_bias.begin(), slope.last_bias.end(), 0.0f);
    std::fill(slope.hidden_bias.begin(), slope.hidden_bias.end(), 0.0f);
    for (int m = 0; m < n; ++m) {
      for (int i = 0; i < kClasses; ++i) slope.last_bias[i] += batch_.scores[m * kClasses + i];
      for (int i = 0; i < kHidden; ++i) {
        float &value = hidden_slope_[m * kHidden + i];
        if (batch_.hidden[m * kHidden + i] <= 0.0f) value = 0.0f;
        slope.hidden_bias[i] += value;
      }
    }
  }

  void second_down() {
    for (int t = 0; t < kTaps; ++t)
      for (int c = 0; c < kFirst; ++c)
        for (int o = 0; o < kSecond; ++o)
          turned_taps_[(t * kSecond + o) * kFirst + c] = own.second[(t * kFirst + c) * kSecond + o];
    kernels_at_points(turned_taps_.data(), turned_.data());
    std::fill(below_.begin(), below_.end(), 0.0f);
    std::fill(gathered_.begin(), gathered_.end(), 0.0f);
    for (int begin = 0; begin < batch_.images; begin += kImages) {
      const int end = std::min(begin + kImages, batch_.images), rows = (end - begin) * kTiles;
      points_of_inputs(batch_, begin, end);
      points_of_slopes(batch_, wide_slope_.data(), begin, end);
      for (int i = 0; i < kPoints; ++i) {
        const float *slopes = &batch_.products[i * kOut];
        product<true>(kFirst, kSecond, rows, &batch_.at_points[i * kIn], 1, kFirst, slopes,
                      kSecond, &gathered_[i * kKernel], kSecond);
        product<false>(rows, kFirst, kSecond, slopes, kSecond, 1, &turned_[i * kKernel], kFirst,
                       &batch_.slopes[i * kIn], kFirst);
      }
      inputs_of_points(batch_, below_.data(), begin, end);
    }
    kernels_of_points(gathered_.data(), slope.second.data());
    for (int c = 0; c < kSecond; c += kLanes) {
      Lanes total = {};
      for (int at = 0; at < batch_.images * kCells; ++at) {
        const Choice which =
            *reinterpret_cast<const Choice *>(&batch_.second_choice[at * kSecond + c]);
        total += which >= 0 ? load(&wide_slope_[at * kSecond + c]) : Lanes{};
      }
      store(&slope.second_bias[c], total);
    }
  }

  int64_t logarithms_;
  Batch batch_;
  std::vector<float> kernels_, turned_, turned_taps_, gathered_, hidden_slope_, wide_slope_, below_;
};

} // namespace

// Writes start - trained of every client to `out`, shape (clients, d). `rows` has shape (steps,
// clients, width); `sizes` says how many of a step's rows count. Outer products are kept of clients
// with no more records in all steps than `factors`. `logarithms` is one of those of `Network`.
extern "C" void updates(const float *start, const float *features, const int64_t *labels,
                        const int64_t *rows, const int64_t *sizes, int64_t steps, int64_t clients,
                        int64_t width, int64_t factors, int64_t logarithms, float rate,
                        float momentum, float *out) {
  Network network(width, logarithms);
  const int64_t records = std::accumulate(sizes, sizes + steps, int64_t{0});
  const bool written = records > factors;
  Wide wide(records, width, written);
  for (int64_t client = 0; client < clients; ++client) {
    client == 0 || written ? network.begin<true>(start) : network.begin<false>(start);
    wide.rest();
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t *own = rows + (step * clients + client) * width;
      network.take(features, own, sizes[step]);
      network.step(wide, labels, own, rate, momentum);
    }
    float *to = out + client * kParameters;
    const auto lost = [&](long at, std::vector<float> &part, long i) {
      to[at] = start[at] - part[i];
    };
    written ? each<true>(network.own, lost) : each<false>(network.own, lost);
    if (!written) wide.total(to + kBeforeWide);
  }
}

// Writes the scores of images, shape (images, 10).
extern "C" void scores(const float *parameters, const float *features, int64_t images,
                       float *out) {
  constexpr int kAtOnce = 10;
  Network network(kAtOnce);
  network.begin<true>(parameters);
  Wide wide(0, 0, true);
  for (int64_t at = 0; at < images; at += kAtOnce) {
    const int count = std::min<int64_t>(kAtOnce, images - at);
    int64_t rows[kAtOnce];
    for (int i = 0; i < count; ++i) rows[i] = at + i;
    network.take(features, rows, count);
    std::copy_n(network.up(wide), count * kClasses, out + at * kClasses);
  }
}
