--- Data sets and batches.

local dataset = require "argand.data.dataset"

return {
  TensorDataset = dataset.TensorDataset,
  Subset = dataset.Subset,
  split = dataset.split,
  Loader = require "argand.data.loader",
  idx = require "argand.data.idx",
}
