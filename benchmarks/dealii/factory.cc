// Functions with eight lanes that MatrixFree calls during its set-up and the library lacks: it has
// them for its own number of lanes only.
#include <deal.II/base/vectorization.h>
#include <deal.II/matrix_free/evaluation_selector.h>
#include <deal.II/matrix_free/evaluation_template_factory.h>
#include <cstdlib>

using namespace dealii;
using Lanes = VectorizedArray<double, 8>;

namespace dealii {
namespace internal {

// Values and gradients of the multilinear map at p + 2 points in each direction, p = 2, 4, 6, 8.
template <>
void FEEvaluationFactory<3, Lanes>::evaluate(const unsigned int components,
                                             const EvaluationFlags::EvaluationFlags flags,
                                             const Lanes *values,
                                             FEEvaluationData<3, Lanes, false> &data) {
    const auto &shape = data.get_shape_info().data[0];
    AssertThrow(shape.fe_degree == 1, ExcNotImplemented());
    switch (shape.n_q_points_1d) {
    case 4:
        SelectEvaluator<3, 1, 4, Lanes>::evaluate(components, flags, values, data);
        break;
    case 6:
        SelectEvaluator<3, 1, 6, Lanes>::evaluate(components, flags, values, data);
        break;
    case 8:
        SelectEvaluator<3, 1, 8, Lanes>::evaluate(components, flags, values, data);
        break;
    case 10:
        SelectEvaluator<3, 1, 10, Lanes>::evaluate(components, flags, values, data);
        break;
    default:
        AssertThrow(false, ExcNotImplemented());
    }
}

// Never called: there are no data at faces.
template <>
void FEFaceEvaluationFactory<3, Lanes>::evaluate(const unsigned int,
                                                 const EvaluationFlags::EvaluationFlags,
                                                 const Lanes *,
                                                 FEEvaluationData<3, Lanes, true> &) {
    std::abort();
}

} // namespace internal
} // namespace dealii
