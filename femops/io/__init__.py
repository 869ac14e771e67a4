"""Files: meshes from other programs, fields for ParaView, checkpoints, and pictures."""

from femops.io.checkpoint.state import State as State
from femops.io.checkpoint.state import load_state as load_state
from femops.io.checkpoint.state import save_state as save_state
from femops.io.mesh_files import read_mesh as read_mesh
from femops.io.plots.movie import movie as movie
from femops.io.plots.picture import Picture as Picture
from femops.io.plots.plot import picture as picture
from femops.io.plots.plot import plot as plot
from femops.io.plots.with_pyvista import to_pyvista as to_pyvista
from femops.io.vtk.series import TimeSeries as TimeSeries
from femops.io.vtk.vtu import save as save

__all__ = [
    "Picture",
    "State",
    "TimeSeries",
    "load_state",
    "movie",
    "picture",
    "plot",
    "read_mesh",
    "save",
    "save_state",
    "to_pyvista",
]
