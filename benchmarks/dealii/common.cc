#include "common.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <boost/property_tree/json_parser.hpp>
#include <deal.II/base/function.h>
#include <deal.II/base/quadrature_lib.h>
#include <deal.II/dofs/dof_tools.h>
#include <deal.II/fe/fe_tools.h>
#include <deal.II/grid/grid_generator.h>
#include <deal.II/grid/grid_tools.h>
#include <deal.II/matrix_free/matrix_free.templates.h>
#include <deal.II/matrix_free/mapping_info.templates.h>
#include <deal.II/matrix_free/mapping_info_storage.templates.h>
#include <deal.II/matrix_free/shape_info.templates.h>
#include <deal.II/matrix_free/dof_info.templates.h>
#include <deal.II/numerics/vector_tools.h>

// The library has these for its own number of lanes only.
template class dealii::MatrixFree<3, double, Lanes>;
template struct dealii::internal::MatrixFreeFunctions::MappingInfo<3, double, Lanes>;
template struct dealii::internal::MatrixFreeFunctions::MappingInfoStorage<3, 3, Lanes>;
template struct dealii::internal::MatrixFreeFunctions::MappingInfoStorage<2, 3, Lanes>;
template struct dealii::internal::MatrixFreeFunctions::ShapeInfo<Lanes>;

namespace {

// The map of femops.bench.problems.bend, after which no element is affine.
Point<3> bend(const Point<3> &x) {
    const double a = std::sin(numbers::PI * x[0]);
    const double b = std::sin(numbers::PI * x[1]);
    const double c = std::sin(numbers::PI * x[2]);
    return Point<3>(x[0] + 0.06 * b * c * (1 + x[0]) + 0.03 * x[1] * x[2],
                    x[1] + 0.06 * a * c * (1 + x[1]) + 0.03 * x[0] * x[2],
                    x[2] + 0.06 * a * b * (1 + x[2]) + 0.03 * x[0] * x[1]);
}

// Place of a cell on the Morton curve: the bits of its three indices in turns.
std::uint64_t morton(const std::array<unsigned, 3> &index) {
    std::uint64_t code = 0;
    for (int bit = 0; bit < 12; ++bit)
        for (int d = 0; d < 3; ++d)
            code |= std::uint64_t((index[d] >> bit) & 1) << (3 * bit + d);
    return code;
}

// The pseudo-random values of compare.py, so that the quadratic forms can be compared.
struct Noise : Function<3> {
    double value(const Point<3> &x, const unsigned) const override {
        std::uint64_t code = 0;
        for (int d = 0; d < 3; ++d) {
            code ^= std::uint64_t(std::int64_t(std::floor(x[d] * 0x1p20 + 0.3)));
            code *= 0x9E3779B97F4A7C15;
            code ^= code >> 29;
        }
        return double((code * 0xBF58476D1CE4E5B9) >> 11) * 0x1p-52 - 1.0;
    }
};

// Place of a name in a list.
int index_of(const std::string &name, const std::vector<std::string> &names) {
    const auto found = std::find(names.begin(), names.end(), name);
    AssertThrow(found != names.end(), ExcMessage("unknown name '" + name + "' in a request"));
    return found - names.begin();
}

} // namespace

bool read_request(Request &request) {
    std::string line;
    if (!std::getline(std::cin, line))
        return false;
    std::istringstream stream(line);
    boost::property_tree::ptree tree;
    boost::property_tree::read_json(stream, tree);
    const auto text = [&](const char *key) { return tree.get<std::string>(key); };
    request.mass = index_of(text("problem"), {"bp1", "bp3"}) == 0;
    request.geometry =
        Geometry(index_of(text("geometry"), {"library", "own numbers", "from vertices"}));
    request.loop = Loop(index_of(text("loop"), {"library", "entities"}));
    request.seconds = tree.get<double>("seconds");
    return true;
}

void write_answer(const Answer &answer) {
    std::cout.precision(17);
    std::cout << "{\"dofs\": " << answer.dofs << ", \"form\": " << answer.form
              << ", \"wall\": " << answer.wall << ", \"cpu\": " << answer.cpu
              << ", \"least\": " << answer.least << "}" << std::endl;
}

Problem::Problem(int degree, int cells, bool morton_order, bool refined) : fe(degree) {
    make_mesh(cells, morton_order);
    if (refined)
        refine();
    dofs.distribute_dofs(fe);
    DoFTools::make_hanging_node_constraints(dofs, constraints);
    constraints.close();
    make_data(degree + 2);
    lexicographic = FETools::hierarchic_to_lexicographic_numbering<3>(degree);
    VectorTools::interpolate(mapping, dofs, Noise(), x);
    constraints.distribute(x);
}

// As femops.bench.adaptive refines its mesh.
void Problem::refine() {
    for (const auto &cell : mesh.active_cell_iterators())
        if (cell->center().distance(Point<3>(0.5, 0.5, 0.5)) < 0.38)
            cell->set_refine_flag();
    mesh.execute_coarsening_and_refinement();
}

void Problem::make_mesh(unsigned cells, bool morton_order) {
    Triangulation<3> cube;
    GridGenerator::subdivided_hyper_cube(cube, cells);
    std::vector<std::pair<std::uint64_t, CellData<3>>> ordered;
    for (const auto &cell : cube.active_cell_iterators()) {
        CellData<3> corners;
        std::array<unsigned, 3> index;
        for (unsigned v = 0; v < 8; ++v)
            corners.vertices[v] = cell->vertex_index(v);
        for (int d = 0; d < 3; ++d)
            index[d] = unsigned(cell->center()[d] * cells);
        ordered.emplace_back(morton(index), corners);
    }
    if (morton_order)
        std::stable_sort(ordered.begin(), ordered.end(),
                         [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<CellData<3>> elements;
    for (const auto &entry : ordered)
        elements.push_back(entry.second);
    mesh.create_triangulation(cube.get_vertices(), elements, SubCellData());
    GridTools::transform(bend, mesh);
}

void Problem::make_data(int points) {
    MatrixFreeData::AdditionalData options;
    options.tasks_parallel_scheme = MatrixFreeData::AdditionalData::none;
    options.mapping_update_flags = update_gradients | update_JxW_values | update_values;
    data.reinit(mapping, dofs, constraints, QGauss<1>(points), options);
    data.initialize_dof_vector(x);
    data.initialize_dof_vector(y);
}
