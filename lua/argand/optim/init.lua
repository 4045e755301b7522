--- Optimizers and gradient clipping.

local adam = require "argand.optim.adam"
local clip = require "argand.optim.clip"

return {
  Optimizer = require "argand.optim.optimizer",
  SGD = require "argand.optim.sgd",
  Adam = adam.Adam,
  AdamW = adam.AdamW,
  clip_grad_norm = clip.clip_grad_norm,
  clip_grad_value = clip.clip_grad_value,
}
