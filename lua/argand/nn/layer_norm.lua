--- LayerNorm: normalises over the last dims, then scales and shifts (Ba et al., 2016).

local ag = require "argand"
local core = require "argand.core"
local checks = require "argand.nn.checks"
local Module = require "argand.nn.module"

---@class argand.nn.LayerNorm: argand.nn.Module
---@field weight? argand.Tensor [shape...]
---@field bias? argand.Tensor [shape...]
local LayerNorm = Module:extend "LayerNorm"

--- Starts weight at 1 and bias at 0; affine = false leaves both out, bias = false the bias.
---@param shape integer|integer[] sizes of the last dims
---@param opts? {eps: number, affine: boolean, bias: boolean, dtype: string, device: string}
function LayerNorm:init(shape, opts)
  shape = type(shape) == "table" and shape or { shape }
  if #shape == 0 then core.raise("argument", "LayerNorm", "shape: expected at least one size") end
  for _, size in ipairs(shape) do checks.require_count("LayerNorm", "shape", size, 1) end
  local read, creation = checks.read_options("LayerNorm", opts, { eps = 1e-5, affine = true, bias = true })
  self.shape, self.eps = shape, read.eps
  if read.affine then
    self.weight = ag.ones(shape, creation)
    if read.bias then self.bias = ag.zeros(shape, creation) end
  end
end

local function ends_with(shape, tail)
  for back = 0, #tail - 1 do
    if shape[#shape - back] ~= tail[#tail - back] then return false end
  end
  return true
end

--- Normalises x: [..., shape...].
---@param x argand.Tensor
---@return argand.Tensor
function LayerNorm:forward(x)
  checks.require_tensor("LayerNorm", x)
  local shape = x:shape()
  if not ends_with(shape, self.shape) then
    local expected = table.concat(self.shape, ", ")
    core.raise("shape", "LayerNorm", ("input: expected [..., %s], got %s"):format(expected,
      checks.shape_text(shape)))
  end
  return ag.layer_norm(x, self.shape, { weight = self.weight, bias = self.bias, eps = self.eps })
end

function LayerNorm:extra()
  local shape = checks.shape_text(self.shape)
  return ("%s, eps=%g, affine=%s"):format(shape, self.eps, tostring(self.weight ~= nil))
end

return LayerNorm
