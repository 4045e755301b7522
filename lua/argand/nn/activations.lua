--- Activations as modules, for Sequential; the tensor methods of the same name do the work.

local checks = require "argand.nn.checks"
local Module = require "argand.nn.module"

local M = {}

local methods = { ReLU = "relu", GELU = "gelu", SiLU = "silu", Tanh = "tanh", Sigmoid = "sigmoid" }

for name, method in pairs(methods) do
  local Activation = Module:extend(name)

  --- Maps x to a tensor of the same shape.
  ---@param x argand.Tensor
  ---@return argand.Tensor
  function Activation.forward(_, x)
    checks.require_tensor(name, x)
    return x[method](x)
  end

  M[name] = Activation
end

return M
