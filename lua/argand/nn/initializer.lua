--- Fills tensors with starting values, in place and without recording; each function returns its tensor.
--
-- fan_in and fan_out of a weight [out, in, ...] are the values that come into and go out of one unit.

local ag = require "argand"
local core = require "argand.core"
local checks = require "argand.nn.checks"
local options = require "argand.options"

local M = {}

local function fans(owner, tensor)
  checks.require_tensor(owner, tensor, "tensor")
  if tensor.ndim < 2 then
    core.raise("shape", owner, ("tensor: expected at least 2 dims, got %d"):format(tensor.ndim))
  end
  local field = 1
  for dim = 3, tensor.ndim do field = field * tensor:size(dim) end
  return tensor:size(2) * field, tensor:size(1) * field
end

local function fill(owner, tensor, source, scale, shift, generator)
  checks.require_tensor(owner, tensor, "tensor")
  ag.no_grad(function()
    local creation = { dtype = tensor.dtype, device = tensor.device, generator = generator }
    local values = ag[source](tensor:shape(), creation)
    tensor:copy_(values:mul(scale):add(shift))
  end)
  return tensor
end

local function require_number(owner, name, value)
  if type(value) ~= "number" then
    core.raise("argument", owner, ("%s: expected a number, got %s"):format(name, type(value)))
  end
  return value
end

local known = { generator = options.optional.any }

--- Uniform in [low, high).
---@param tensor argand.Tensor
---@param low? number default 0
---@param high? number default 1
---@param opts? {generator: argand.Generator}
function M.uniform_(tensor, low, high, opts)
  low, high = require_number("uniform_", "low", low or 0), require_number("uniform_", "high", high or 1)
  local generator = options.read("uniform_", opts, known).generator
  return fill("uniform_", tensor, "rand", high - low, low, generator)
end

--- Normal with the mean and standard deviation given.
---@param tensor argand.Tensor
---@param mean? number default 0
---@param std? number default 1
---@param opts? {generator: argand.Generator}
function M.normal_(tensor, mean, std, opts)
  local generator = options.read("normal_", opts, known).generator
  mean, std = require_number("normal_", "mean", mean or 0), require_number("normal_", "std", std or 1)
  return fill("normal_", tensor, "randn", std, mean, generator)
end

--- One value everywhere.
---@param tensor argand.Tensor
---@param value number
function M.constant_(tensor, value)
  checks.require_tensor("constant_", tensor, "tensor")
  ag.no_grad(function() tensor:fill_(value) end)
  return tensor
end

--- Zeros.
function M.zeros_(tensor)
  return M.constant_(tensor, 0)
end

--- Ones.
function M.ones_(tensor)
  return M.constant_(tensor, 1)
end

local kaiming_known = { a = 0, mode = "fan_in", generator = options.optional.any }

-- Standard deviation that keeps the variance through a leaky ReLU of slope a (He et al., 2015).
local function kaiming_std(owner, tensor, read)
  local fan_in, fan_out = fans(owner, tensor)
  if read.mode ~= "fan_in" and read.mode ~= "fan_out" then
    core.raise("value", owner, ("mode: expected 'fan_in' or 'fan_out', got '%s'"):format(read.mode))
  end
  local fan = read.mode == "fan_in" and fan_in or fan_out
  return math.sqrt(2 / (1 + read.a ^ 2)) / math.sqrt(math.max(fan, 1))
end

--- Uniform values that keep the variance of a layer with ReLU (He et al., 2015).
---@param tensor argand.Tensor [out, in, ...]
---@param opts? {a: number, mode: "fan_in"|"fan_out", generator: argand.Generator}
function M.kaiming_uniform_(tensor, opts)
  local read = options.read("kaiming_uniform_", opts, kaiming_known)
  local bound = math.sqrt(3) * kaiming_std("kaiming_uniform_", tensor, read)
  return fill("kaiming_uniform_", tensor, "rand", 2 * bound, -bound, read.generator)
end

--- Normal values that keep the variance of a layer with ReLU (He et al., 2015).
---@param tensor argand.Tensor [out, in, ...]
---@param opts? {a: number, mode: "fan_in"|"fan_out", generator: argand.Generator}
function M.kaiming_normal_(tensor, opts)
  local read = options.read("kaiming_normal_", opts, kaiming_known)
  local std = kaiming_std("kaiming_normal_", tensor, read)
  return fill("kaiming_normal_", tensor, "randn", std, 0, read.generator)
end

local xavier_known = { gain = 1, generator = options.optional.any }

--- Uniform values for symmetric activations (Glorot and Bengio, 2010).
---@param tensor argand.Tensor [out, in, ...]
---@param opts? {gain: number, generator: argand.Generator}
function M.xavier_uniform_(tensor, opts)
  local read = options.read("xavier_uniform_", opts, xavier_known)
  local fan_in, fan_out = fans("xavier_uniform_", tensor)
  local bound = read.gain * math.sqrt(6 / math.max(fan_in + fan_out, 1))
  return fill("xavier_uniform_", tensor, "rand", 2 * bound, -bound, read.generator)
end

--- Normal values for symmetric activations (Glorot and Bengio, 2010).
---@param tensor argand.Tensor [out, in, ...]
---@param opts? {gain: number, generator: argand.Generator}
function M.xavier_normal_(tensor, opts)
  local read = options.read("xavier_normal_", opts, xavier_known)
  local fan_in, fan_out = fans("xavier_normal_", tensor)
  local std = read.gain * math.sqrt(2 / math.max(fan_in + fan_out, 1))
  return fill("xavier_normal_", tensor, "randn", std, 0, read.generator)
end

return M
