// Products with the mass (bp1) and diffusion (bp3) operators by deal.II's matrix-free kernels, at
// the degree ORDER. Answers requests on the standard input: dealiiORDER CELLS MORTON(0 or 1) [refined].
#include "common.h"
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <sys/mman.h>
#include <deal.II/base/mpi.h>
#include <deal.II/base/quadrature_lib.h>
#include <deal.II/matrix_free/evaluation_kernels_hanging_nodes.h>
#include <deal.II/matrix_free/fe_evaluation.h>

// Interpolation of hanging nodes, which the library has for its own number of lanes only.
template <>
void dealii::internal::FEEvaluationHangingNodesFactory<3, double, Lanes>::apply(
    const unsigned int components, const unsigned int,
    const MatrixFreeFunctions::ShapeInfo<Lanes> &shape, const bool transpose,
    const std::array<MatrixFreeFunctions::compressed_constraint_kind, 8> &kinds, Lanes *values) {
    FEEvaluationImplHangingNodes<3, Lanes>::run<ORDER, ORDER + 1>(components, shape, transpose,
                                                                  kinds, values);
}

namespace {

constexpr int p = ORDER;
constexpr int points_1d = p + 2;
constexpr int num_points = points_1d * points_1d * points_1d;
constexpr int num_nodes = (p + 1) * (p + 1) * (p + 1);
constexpr int num_lanes = 8;
constexpr int num_entities = 27; // of an element: 8 vertices, 12 edges, 6 faces, its interior

using Evaluation = FEEvaluation<3, p, points_1d, 1, double, Lanes>;
using BatchRange = std::pair<unsigned, unsigned>;
using Vector3 = std::array<Lanes, 3>;

// Array of zeros on huge pages, which femops has too.
template <class T>
class HugeArray {
  public:
    HugeArray() = default;
    HugeArray(const HugeArray &) = delete;
    HugeArray &operator=(const HugeArray &) = delete;
    ~HugeArray() {
        std::free(data_);
    }

    void allocate(std::size_t size) {
        constexpr std::size_t page = 1 << 21;
        const std::size_t bytes = (size * sizeof(T) / page + 1) * page;
        data_ = static_cast<T *>(std::aligned_alloc(page, bytes));
        AssertThrow(data_ != nullptr, ExcOutOfMemory(bytes));
        madvise(data_, bytes, MADV_HUGEPAGE);
        std::memset(static_cast<void *>(data_), 0, bytes);
    }
    T *at(std::size_t i) {
        return data_ + i;
    }
    const T *at(std::size_t i) const {
        return data_ + i;
    }
    T &operator[](std::size_t i) {
        return data_[i];
    }

  private:
    T *data_ = nullptr;
};

// a + t b
inline Vector3 combine(const Vector3 &a, double t, const Vector3 &b) {
    return {{a[0] + t * b[0], a[1] + t * b[1], a[2] + t * b[2]}};
}

inline Vector3 cross(const Vector3 &a, const Vector3 &b) {
    return {{a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}};
}

inline Lanes dot(const Vector3 &a, const Vector3 &b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

// Derivatives of the map at a point, in the three reference directions.
struct Jacobian {
    Vector3 d0, d1, d2;

    // Multiply a value by the determinant and the weight of quadrature.
    void scale_value(double weight, Lanes *value) const {
        *value *= dot(d0, cross(d1, d2)) * weight;
    }

    // Multiply a gradient by J^-1 J^-T det J and the weight. Its components are num_points apart.
    void scale_gradient(double weight, Lanes *gradient) const {
        // rows of the inverse, times the determinant
        const Vector3 r0 = cross(d1, d2), r1 = cross(d2, d0), r2 = cross(d0, d1);
        const Lanes scale = Lanes(weight) / dot(d0, r0);
        const Lanes g0 = gradient[0];
        const Lanes g1 = gradient[num_points];
        const Lanes g2 = gradient[2 * num_points];
        Vector3 flux;
        for (int d = 0; d < 3; ++d)
            flux[d] = scale * (r0[d] * g0 + r1[d] * g1 + r2[d] * g2);
        gradient[0] = dot(r0, flux);
        gradient[num_points] = dot(r1, flux);
        gradient[2 * num_points] = dot(r2, flux);
    }
};

// Products by three sources of geometry and two loops.
class Benchmark : public Problem {
  public:
    Benchmark(int cells, bool morton_order, bool refined);
    Answer measure(const Request &request);

  private:
    // A line of p - 1 nodes inside an entity: `offset` dofs after the entity's first one, at
    // `first`, `first + stride`, ... in lexicographic order.
    struct Row {
        int entity, offset, first, stride;
    };

    const unsigned num_batches;
    std::array<double, points_1d> position, weight; // of the rule in one direction
    HugeArray<Lanes> weights;                       // num_points for each batch
    HugeArray<Lanes> tensors;                       // 6 num_points for each batch
    HugeArray<Vector3> maps;                        // 8 trilinear coefficients for each batch

    std::array<int, 8> corners;    // lexicographic numbers of the vertices of an element
    std::vector<Row> rows;         // of one element: the same for all
    HugeArray<unsigned> starts;    // first dof of each entity, for each lane
    std::vector<unsigned> touched; // one more than the last dof up to a batch
    HugeArray<double> own_x, own_y;

    void store_map(unsigned batch);
    void store_numbers(unsigned batch, const Evaluation &evaluation);
    void list_rows();
    void list_starts();

    void gather(unsigned batch, const double *from, Lanes *nodes) const;
    void scatter(unsigned batch, const Lanes *nodes, double *into) const;

    template <bool mass>
    void scale_by_library(Evaluation &evaluation) const;
    template <bool mass>
    void scale_by_numbers(unsigned batch, Lanes *values) const;
    template <bool mass>
    void scale_from_vertices(unsigned batch, Lanes *values) const;
    template <bool mass, Geometry geometry>
    void scale(unsigned batch, Evaluation &evaluation) const;

    template <bool mass, Geometry geometry>
    void loop_of_library();
    template <bool mass, Geometry geometry>
    void loop_over_entities();
    template <bool mass, Geometry geometry>
    void multiply(Loop loop);
    template <bool mass>
    void multiply(const Request &request);
    void multiply(const Request &request);
};

// --- set-up --------------------------------------------------------------------------------------

Benchmark::Benchmark(int cells, bool morton_order, bool refined)
    : Problem(p, cells, morton_order, refined),
      num_batches(data.n_cell_batches()) {
    const QGauss<1> rule(points_1d);
    for (int i = 0; i < points_1d; ++i) {
        position[i] = rule.point(i)[0];
        weight[i] = rule.weight(i);
    }
    weights.allocate(std::size_t(num_batches) * num_points);
    tensors.allocate(std::size_t(num_batches) * num_points * 6);
    maps.allocate(std::size_t(num_batches) * 8);
    Evaluation evaluation(data);
    for (unsigned batch = 0; batch < num_batches; ++batch) {
        evaluation.reinit(batch);
        store_map(batch);
        store_numbers(batch, evaluation);
    }
    if (refined)
        return; // nodes that hang are for the library's loop
    list_rows();
    list_starts();
    // lanes without an element read and add after the last dof
    own_x.allocate(dofs.n_dofs() + num_nodes);
    own_y.allocate(dofs.n_dofs() + num_nodes);
    for (unsigned i = 0; i < dofs.n_dofs(); ++i)
        own_x[i] = x.local_element(i);
}

// Coefficients of 1, x, y, xy, z, xz, yz and xyz. Lanes without an element repeat the first one.
void Benchmark::store_map(unsigned batch) {
    Vector3 *map = maps.at(std::size_t(batch) * 8);
    for (int lane = 0; lane < num_lanes; ++lane) {
        const bool active = lane < int(data.n_active_entries_per_cell_batch(batch));
        const auto cell = data.get_cell_iterator(batch, active ? lane : 0);
        for (int d = 0; d < 3; ++d) {
            std::array<double, 8> c;
            for (int v = 0; v < 8; ++v)
                c[v] = cell->vertex(v)[d];
            for (int bit = 1; bit < 8; bit *= 2) // differences in one direction after the other
                for (int v = 0; v < 8; ++v)
                    if (v & bit)
                        c[v] -= c[v - bit];
            for (int v = 0; v < 8; ++v)
                map[v][d][lane] = c[v];
        }
    }
}

void Benchmark::store_numbers(unsigned batch, const Evaluation &evaluation) {
    const std::size_t first = std::size_t(batch) * num_points;
    for (int point = 0; point < num_points; ++point) {
        const auto inverse = evaluation.inverse_jacobian(point); // J^-T
        const auto tensor = transpose(inverse) * inverse;
        const Lanes w = evaluation.JxW(point);
        weights[first + point] = w;
        Lanes *six = tensors.at((first + point) * 6);
        for (int i = 0; i < 3; ++i)
            for (int j = i; j < 3; ++j)
                *six++ = w * tensor[i][j];
    }
}

// Number of nodes inside an entity. Entities are in deal.II's order.
constexpr int size_of(int entity) {
    constexpr int inside = p - 1;
    return entity < 8    ? 1
           : entity < 20 ? inside
           : entity < 26 ? inside * inside
                         : inside * inside * inside;
}

void Benchmark::list_rows() {
    const auto place = [this](int node) { return int(lexicographic[node]); };
    for (int v = 0; v < 8; ++v)
        corners[v] = place(v);
    int node = 8;
    for (int entity = 8; entity < num_entities; ++entity)
        for (int offset = 0; offset < size_of(entity); offset += p - 1, node += p - 1) {
            const int stride = p > 2 ? place(node + 1) - place(node) : 1;
            rows.push_back({entity, offset, place(node), stride});
            for (int i = 0; i < p - 1; ++i)
                AssertThrow(place(node + i) == place(node) + i * stride,
                            ExcMessage("the nodes of a row are not equally spaced"));
        }
}

void Benchmark::list_starts() {
    starts.allocate(std::size_t(num_batches) * num_entities * num_lanes);
    std::vector<types::global_dof_index> indices(num_nodes);
    unsigned end = 0;
    for (unsigned batch = 0; batch < num_batches; ++batch) {
        unsigned *start = starts.at(std::size_t(batch) * num_entities * num_lanes);
        const unsigned active = data.n_active_entries_per_cell_batch(batch);
        std::fill(start, start + num_entities * num_lanes, dofs.n_dofs());
        for (unsigned lane = 0; lane < active; ++lane) {
            data.get_cell_iterator(batch, lane)->get_dof_indices(indices);
            int node = 0;
            for (int entity = 0; entity < num_entities; ++entity) {
                start[entity * num_lanes + lane] = indices[node];
                for (int i = 1; i < size_of(entity); ++i)
                    AssertThrow(indices[node + i] == indices[node] + i,
                                ExcMessage("the dofs of an entity do not follow each other"));
                node += size_of(entity);
            }
            end = std::max<unsigned>(end, *std::max_element(indices.begin(), indices.end()) + 1);
        }
        touched.push_back(end);
    }
}

// --- dofs of a batch, by the starts of its entities ----------------------------------------------

void Benchmark::gather(unsigned batch, const double *from, Lanes *nodes) const {
    const unsigned *start = starts.at(std::size_t(batch) * num_entities * num_lanes);
    for (int v = 0; v < 8; ++v)
        nodes[corners[v]].gather(from, start + v * num_lanes);
    for (const Row &row : rows) {
        const unsigned *first = start + row.entity * num_lanes;
        const double *base = from + row.offset;
        if constexpr (p == 2) {
            nodes[row.first].gather(base, first);
        } else if (row.stride == 1) {
            vectorized_load_and_transpose(p - 1, base, first, nodes + row.first);
        } else {
            Lanes line[p - 1];
            vectorized_load_and_transpose(p - 1, base, first, line);
            for (int i = 0; i < p - 1; ++i)
                nodes[row.first + i * row.stride] = line[i];
        }
    }
}

// Add one number for each lane. Lanes may have the same dof.
inline void add(const Lanes &numbers, const unsigned *dofs, double *into) {
    for (int lane = 0; lane < num_lanes; ++lane)
        into[dofs[lane]] += numbers[lane];
}

void Benchmark::scatter(unsigned batch, const Lanes *nodes, double *into) const {
    const unsigned *start = starts.at(std::size_t(batch) * num_entities * num_lanes);
    for (int v = 0; v < 8; ++v)
        add(nodes[corners[v]], start + v * num_lanes, into);
    for (const Row &row : rows) {
        const unsigned *first = start + row.entity * num_lanes;
        double *base = into + row.offset;
        if constexpr (p == 2) {
            add(nodes[row.first], first, base);
        } else if (row.stride == 1) {
            vectorized_transpose_and_store(true, p - 1, nodes + row.first, first, base);
        } else {
            Lanes line[p - 1];
            for (int i = 0; i < p - 1; ++i)
                line[i] = nodes[row.first + i * row.stride];
            vectorized_transpose_and_store(true, p - 1, line, first, base);
        }
    }
}

// --- quadrature points ---------------------------------------------------------------------------

// Inlined into the loops over batches: calls cost some percent.

template <bool mass>
DEAL_II_ALWAYS_INLINE inline void Benchmark::scale_by_library(Evaluation &evaluation) const {
    for (int point = 0; point < num_points; ++point)
        if constexpr (mass)
            evaluation.submit_value(evaluation.get_value(point), point);
        else
            evaluation.submit_gradient(evaluation.get_gradient(point), point);
}

template <bool mass>
DEAL_II_ALWAYS_INLINE inline void Benchmark::scale_by_numbers(unsigned batch, Lanes *values) const {
    const std::size_t first = std::size_t(batch) * num_points;
    if constexpr (mass) {
        const Lanes *w = weights.at(first);
        for (int point = 0; point < num_points; ++point)
            values[point] *= w[point];
    } else {
        const Lanes *s = tensors.at(first * 6);
        for (int point = 0; point < num_points; ++point, s += 6) {
            Lanes *gradient = values + point;
            const Lanes g0 = gradient[0];
            const Lanes g1 = gradient[num_points];
            const Lanes g2 = gradient[2 * num_points];
            gradient[0] = s[0] * g0 + s[1] * g1 + s[2] * g2;
            gradient[num_points] = s[1] * g0 + s[3] * g1 + s[4] * g2;
            gradient[2 * num_points] = s[2] * g0 + s[4] * g1 + s[5] * g2;
        }
    }
}

// The derivative in a direction does not depend on the position in it: parts of it are computed
// once for a plane and once for a line of points.
template <bool mass>
DEAL_II_ALWAYS_INLINE inline void Benchmark::scale_from_vertices(unsigned batch,
                                                                 Lanes *values) const {
    const Vector3 *c = maps.at(std::size_t(batch) * 8);
    for (int k = 0; k < points_1d; ++k) {
        const Vector3 plane_x = combine(c[1], position[k], c[5]);
        const Vector3 plane_y = combine(c[2], position[k], c[6]);
        const Vector3 plane_xy = combine(c[3], position[k], c[7]);
        for (int j = 0; j < points_1d; ++j) {
            const Vector3 d0 = combine(plane_x, position[j], plane_xy);
            const Vector3 line_z = combine(c[4], position[j], c[6]);
            const Vector3 line_xz = combine(c[5], position[j], c[7]);
            const double line_weight = weight[k] * weight[j];
            for (int i = 0; i < points_1d; ++i, ++values) {
                const Jacobian jacobian{d0, combine(plane_y, position[i], plane_xy),
                                        combine(line_z, position[i], line_xz)};
                if constexpr (mass)
                    jacobian.scale_value(line_weight * weight[i], values);
                else
                    jacobian.scale_gradient(line_weight * weight[i], values);
            }
        }
    }
}

template <bool mass, Geometry geometry>
DEAL_II_ALWAYS_INLINE inline void Benchmark::scale(unsigned batch, Evaluation &evaluation) const {
    if constexpr (geometry == Geometry::library) {
        scale_by_library<mass>(evaluation);
    } else {
        Lanes *values = mass ? evaluation.begin_values() : evaluation.begin_gradients();
        if constexpr (geometry == Geometry::own_numbers)
            scale_by_numbers<mass>(batch, values);
        else
            scale_from_vertices<mass>(batch, values);
    }
}

// --- products ------------------------------------------------------------------------------------

template <bool mass>
constexpr auto flag = mass ? EvaluationFlags::values : EvaluationFlags::gradients;

// The loop zeroes the result on its way. With the library's geometry it is as users write it.
template <bool mass, Geometry geometry>
void Benchmark::loop_of_library() {
    const std::function<void(const MatrixFreeData &, DofVector &, const DofVector &,
                             const BatchRange &)>
        work = [this](const auto &data, auto &into, const auto &from, const auto &range) {
            Evaluation evaluation(data);
            for (unsigned batch = range.first; batch < range.second; ++batch) {
                evaluation.reinit(batch);
                evaluation.gather_evaluate(from, flag<mass>);
                scale<mass, geometry>(batch, evaluation);
                evaluation.integrate_scatter(flag<mass>, into);
            }
        };
    data.cell_loop(work, y, x, true);
}

template <bool mass, Geometry geometry>
void Benchmark::loop_over_entities() {
    Evaluation evaluation(data);
    unsigned zeroed = 0;
    for (unsigned batch = 0; batch < num_batches; ++batch) {
        if (geometry == Geometry::library || batch == 0)
            evaluation.reinit(batch);
        Lanes *nodes = evaluation.begin_dof_values();
        std::memset(own_y.at(zeroed), 0, (touched[batch] - zeroed) * sizeof(double));
        zeroed = touched[batch];
        gather(batch, own_x.at(0), nodes);
        evaluation.evaluate(nodes, flag<mass>);
        scale<mass, geometry>(batch, evaluation);
        evaluation.integrate(flag<mass>, nodes);
        scatter(batch, nodes, own_y.at(0));
    }
}

template <bool mass, Geometry geometry>
void Benchmark::multiply(Loop loop) {
    if (loop == Loop::library)
        loop_of_library<mass, geometry>();
    else
        loop_over_entities<mass, geometry>();
}

template <bool mass>
void Benchmark::multiply(const Request &request) {
    if (request.geometry == Geometry::library)
        multiply<mass, Geometry::library>(request.loop);
    else if (request.geometry == Geometry::own_numbers)
        multiply<mass, Geometry::own_numbers>(request.loop);
    else
        multiply<mass, Geometry::from_vertices>(request.loop);
}

void Benchmark::multiply(const Request &request) {
    if (request.mass)
        multiply<true>(request);
    else
        multiply<false>(request);
}

// --- measurement ---------------------------------------------------------------------------------

double seconds_of(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

double median(std::vector<double> numbers) {
    std::sort(numbers.begin(), numbers.end());
    return numbers[numbers.size() / 2];
}

Answer Benchmark::measure(const Request &request) {
    Answer answer{};
    answer.dofs = dofs.n_dofs() - constraints.n_constraints();
    for (int warm_up = 0; warm_up < 2; ++warm_up)
        multiply(request);
    const bool entities = request.loop == Loop::entities;
    for (unsigned i = 0; i < dofs.n_dofs(); ++i)
        answer.form += x.local_element(i) * (entities ? own_y[i] : y.local_element(i));
    std::vector<double> wall, cpu;
    for (double sum = 0; sum < request.seconds || wall.size() < 3; sum += wall.back()) {
        const double cpu_before = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        const double before = seconds_of(CLOCK_MONOTONIC);
        multiply(request);
        wall.push_back(seconds_of(CLOCK_MONOTONIC) - before);
        cpu.push_back(seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_before);
    }
    answer.wall = median(wall);
    answer.cpu = median(cpu);
    answer.least = *std::min_element(cpu.begin(), cpu.end());
    return answer;
}

} // namespace

int main(int argc, char **argv) {
    Utilities::MPI::MPI_InitFinalize mpi(argc, argv, 1); // one thread
    AssertThrow(argc == 3 || argc == 4,
                ExcMessage("give the cells in a direction, 1 for Morton order, and 'refined'"));
    Benchmark benchmark(std::atoi(argv[1]), std::atoi(argv[2]) == 1, argc == 4);
    Request request;
    while (read_request(request))
        write_answer(benchmark.measure(request));
}
