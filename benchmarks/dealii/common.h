// Mesh, space, vectors and deal.II's data for its matrix-free kernels, and the requests that the
// program answers. Nothing here needs the polynomial degree at compile time.
#pragma once
#include <deal.II/base/vectorization.h> // the copy of build.sh: eight lanes
#include <deal.II/dofs/dof_handler.h>
#include <deal.II/fe/fe_q.h>
#include <deal.II/fe/mapping_q.h>
#include <deal.II/grid/tria.h>
#include <deal.II/lac/affine_constraints.h>
#include <deal.II/lac/la_parallel_vector.h>
#include <deal.II/matrix_free/matrix_free.h>
#include <string>
#include <vector>

using namespace dealii;

using Lanes = VectorizedArray<double, 8>; // one number of each element of a batch
using DofVector = LinearAlgebra::distributed::Vector<double>;
using MatrixFreeData = MatrixFree<3, double, Lanes>;

// Source of the map's derivatives at quadrature points.
enum class Geometry {
    library,       // deal.II's Jacobians
    own_numbers,   // stored weights for bp1, six numbers of the merged tensor for bp3
    from_vertices, // computed from the eight vertices of an element
};

// Loop over the batches of elements.
enum class Loop {
    library,  // deal.II's, with one index per dof
    entities, // ours, with 27 starts per element
};

struct Request {
    bool mass; // bp1, else bp3
    Geometry geometry;
    Loop loop;
    double seconds; // repeat products for so long
};

struct Answer {
    unsigned dofs; // without hanging ones
    double form;  // x . A x
    double wall;  // median of the products
    double cpu;   // median of the products
    double least; // least processor time
};

// Read a line of JSON from the standard input. False at its end.
bool read_request(Request &request);

// Write a line of JSON to the standard output.
void write_answer(const Answer &answer);

// Problem on a bent cube with `cells` multilinear elements in each direction. If it is refined,
// those in a ball are halved, and nodes hang.
struct Problem {
    Triangulation<3> mesh;
    MappingQ<3> mapping{1};
    FE_Q<3> fe;
    DoFHandler<3> dofs{mesh};
    AffineConstraints<double> constraints; // of hanging nodes
    MatrixFreeData data;
    DofVector x, y;
    std::vector<unsigned> lexicographic; // number of a dof of an element, by deal.II's number

    Problem(int degree, int cells, bool morton_order, bool refined);

  private:
    void make_mesh(unsigned cells, bool morton_order);
    void refine();
    void make_data(int points);
};
