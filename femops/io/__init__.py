"""Files: meshes of other programs, fields for ParaView, pictures for people."""

from femops.io.mesh_files import read_mesh as read_mesh
from femops.io.picture import picture as picture
from femops.io.series import TimeSeries as TimeSeries
from femops.io.vtu import save as save

__all__ = ["TimeSeries", "picture", "read_mesh", "save"]
