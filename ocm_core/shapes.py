"""The array shapes that signatures use."""

from jaxtyping import Float, Float64, Int, Real
from numpy import ndarray
from torch import Tensor

Batch = Float[Tensor, "batch *dims"]  # points, images or latents
Images = Float[Tensor, "batch channel height width"]
Points = Float[Tensor, "n d"]  # vectors: of a mixture, or features of images
PerPoint = Float[Tensor, "n 1"]
PerSample = Float[Tensor, " batch"]
Times = Int[Tensor, " batch"]  # t = 1 … T
NetworkTimes = Real[Tensor, " batch"]  # t as a network was trained with it
Labels = Int[Tensor, " batch"] | None
OverTime = Float[Tensor, "T+1"]  # a table over t = 0 … T
TimeTable = Float64[ndarray, "T+1"]  # the same on the host, in float64
