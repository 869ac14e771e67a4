"""Convolution of a batch of images: windows of an image are a strided view, so nothing is copied.

The windows W[y, x, c, u, v] = I[y + u, x + v, c] have strides that repeat the image's own. Their
contraction with the filters is a product of matrices for each image.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import femops


def convolve(images, filters):
    """Convolve images (members, height, width, c) with filters (dy, dx, c, features)."""
    windows = sliding_window_view(images, filters.shape[:2], axis=(1, 2))
    return femops.tensor.einsum("yxcuv,uvcf->yxf", windows, filters)


def main():
    """Compare with SciPy."""
    from scipy.signal import correlate

    rng = np.random.default_rng(0)
    images, filters = rng.standard_normal((20, 12, 12, 3)), rng.standard_normal((3, 3, 3, 8))
    found = convolve(images, filters)
    one = [
        sum(correlate(images[7, :, :, c], filters[:, :, c, f], mode="valid") for c in range(3))
        for f in range(8)
    ]
    error = np.abs(found[7] - np.moveaxis(one, 0, -1)).max()
    print(f"{found.shape}: largest difference from SciPy {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
