"""Files that other programs read: fields for ParaView, pictures for people."""

from femops.io.picture import picture as picture
from femops.io.vtu import save as save

__all__ = ["picture", "save"]
