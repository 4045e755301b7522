--- Neural network modules.

local activations = require "argand.nn.activations"
local checks = require "argand.nn.checks"

local M = {
  Module = require "argand.nn.module",
  Linear = require "argand.nn.linear",
  Dropout = require "argand.nn.dropout",
  LayerNorm = require "argand.nn.layer_norm",
  Embedding = require "argand.nn.embedding",
  Sequential = require "argand.nn.sequential",
  initializer = require "argand.nn.initializer",
}
for name, module_class in pairs(activations) do M[name] = module_class end

--- Marks a tensor as a parameter: detached from any graph, with requires_grad.
---@param tensor argand.Tensor
---@return argand.Tensor
function M.parameter(tensor)
  checks.require_tensor("parameter", tensor, "tensor")
  local parameter = tensor:detach()
  parameter.requires_grad = true
  return parameter
end

return M
