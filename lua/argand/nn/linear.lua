--- Linear: y = x W^T + b.

local ag = require "argand"
local core = require "argand.core"
local checks = require "argand.nn.checks"
local initializer = require "argand.nn.initializer"
local Module = require "argand.nn.module"

---@class argand.nn.LinearOptions
---@field bias? boolean default true
---@field activation? "none"|"relu"|"gelu"
---@field dtype? string
---@field device? string
---@field generator? argand.Generator

---@class argand.nn.Linear: argand.nn.Module
---@field weight argand.Tensor [out_features, in_features]
---@field bias? argand.Tensor [out_features]
local Linear = Module:extend "Linear"

--- Starts weight and bias uniform in +-1/sqrt(in_features). An activation runs fused with the product.
---@param in_features integer
---@param out_features integer
---@param opts? argand.nn.LinearOptions
function Linear:init(in_features, out_features, opts)
  checks.require_count("Linear", "in_features", in_features, 1)
  checks.require_count("Linear", "out_features", out_features, 1)
  local read, creation = checks.read_options("Linear", opts, { bias = true, activation = "none" })
  if read.activation ~= "none" and read.activation ~= "relu" and read.activation ~= "gelu" then
    core.raise("option", "Linear", ("activation: expected none, relu or gelu, got '%s'"):format(
      read.activation))
  end
  self.in_features, self.out_features, self.activation = in_features, out_features, read.activation
  self.weight = ag.empty({ out_features, in_features }, creation)
  initializer.kaiming_uniform_(self.weight, { a = math.sqrt(5), generator = read.generator })
  if read.bias then
    local bound = 1 / math.sqrt(in_features)
    self.bias = ag.empty({ out_features }, creation)
    initializer.uniform_(self.bias, -bound, bound, { generator = read.generator })
  end
end

local function check_input(self, x)
  local owner = ("Linear(%d -> %d)"):format(self.in_features, self.out_features)
  checks.require_tensor(owner, x)
  if x.ndim == 0 or x:size(-1) ~= self.in_features then
    core.raise("shape", owner, ("input: expected [..., %d], got %s"):format(self.in_features,
      checks.shape_text(x:shape())), "the last dim must be in_features of the layer")
  end
end

--- Maps x: [..., in_features] to [..., out_features].
---@param x argand.Tensor
---@return argand.Tensor
function Linear:forward(x)
  if not core.is_tensor(x) or x.ndim == 0 or x:size(-1) ~= self.in_features then check_input(self, x) end
  return ag.linear(x, self.weight, { bias = self.bias, activation = self.activation })
end

function Linear:extra()
  local activation = self.activation ~= "none" and ", activation=" .. self.activation or ""
  return ("in_features=%d, out_features=%d, bias=%s%s"):format(self.in_features, self.out_features,
    tostring(self.bias ~= nil), activation)
end

return Linear
