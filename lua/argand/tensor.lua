--- tensor: tensor functions and methods that are composed in Lua: several results, FFI access, comparisons of whole tensors.
local ffi = require "ffi"
local core = require "argand.core"
local collectives = require "argand.dist.kinds"
local options_of = require "argand.options"

local M = {}

local pointer_types = {
  f64 = "double *", f32 = "float *", f16 = "uint16_t *", bf16 = "uint16_t *", i64 = "int64_t *", i32 = "int32_t *",
  i16 = "int16_t *", i8 = "int8_t *", u8 = "uint8_t *", bool = "uint8_t *",
}

-- A pointer does not keep its tensor alive by itself; this does, as long as the pointer lives.
local pointer_owners = setmetatable({}, {__mode = "k"})

--- A typed FFI pointer to the first of t:numel() contiguous elements, 0-based. f16 and bf16 come as their bits.
-- It stays valid until it is collected itself, or t:free() is called; what is computed from it does not keep the tensor.
-- Writes through it are not seen by autodiff.
---@param t argand.Tensor
---@return ffi.cdata*
local function data(t)
  local address = core.address(t)
  local pointer = ffi.cast(pointer_types[t.dtype], address)
  pointer_owners[pointer] = t
  return pointer
end

local function check_tensor(t, op, arg)
  if not core.is_tensor(t) then core.raise("argument", op, arg .. ": expected a tensor, got " .. type(t)) end
end

local function is_whole(value, least)
  return type(value) == "number" and value >= least and value == math.floor(value) and value < math.huge
end

local function dim_of(t, dim, op)
  check_tensor(t, op, "self")
  local ndim = t.ndim
  local at = type(dim) == "number" and dim < 0 and dim + ndim + 1 or dim
  if not is_whole(at, 1) or at > ndim then
    core.raise("index", op, ("dim: expected 1 to %d, or -%d to -1, got %s"):format(ndim, ndim, tostring(dim)))
  end
  return at
end

--- Parts of `size` positions along dim (the last may be shorter), or parts of the sizes listed.
---@param t argand.Tensor
---@param size integer|integer[]
---@param dim? integer default 1
---@return argand.Tensor[] parts views
local function split(t, size, dim)
  dim = dim_of(t, dim or 1, "split")
  local total, parts, start = t:size(dim), {}, 1
  local is_list = type(size) == "table"
  if not is_list and not is_whole(size, 1) then
    core.raise("value", "split", "size: expected a whole number >= 1 or a list of sizes, got " .. tostring(size))
  end
  if is_list then
    local sum = 0
    for _, n in ipairs(size) do
      if not is_whole(n, 0) then core.raise("value", "split", "size: expected whole numbers >= 0, got " .. tostring(n)) end
      sum = sum + n
    end
    if sum ~= total then
      core.raise("value", "split", ("size: expected sizes that sum to %d, got %d"):format(total, sum))
    end
  end
  repeat
    local length
    if is_list then length = size[#parts + 1] else length = math.min(size, total - start + 1) end
    if not length then break end
    parts[#parts + 1] = t:narrow(dim, length > 0 and start or 1, length)
    start = start + length
  until (not is_list and start > total)
  return parts
end

--- At most `count` parts of one size along dim; the last may be shorter.
---@param t argand.Tensor
---@param count integer
---@param dim? integer default 1
---@return argand.Tensor[] parts views
local function chunk(t, count, dim)
  dim = dim_of(t, dim or 1, "chunk")
  if not is_whole(count, 1) then
    core.raise("value", "chunk", "count: expected a whole number >= 1, got " .. tostring(count))
  end
  return split(t, math.max(1, math.ceil(t:size(dim) / count)), dim)
end

--- The slices along dim, which goes away.
---@param t argand.Tensor
---@param dim? integer default 1
---@return argand.Tensor[] parts views
local function unbind(t, dim)
  dim = dim_of(t, dim or 1, "unbind")
  local parts = {}
  for i = 1, t:size(dim) do parts[i] = t:select(dim, i) end
  return parts
end

-- max and min: of all elements, along a dim with positions, or of two tensors.
local function extreme(all, along, pair)
  return function(t, other, keepdim)
    check_tensor(t, pair == "maximum" and "max" or "min", "x")
    if other == nil then return t[all](t) end
    if core.is_tensor(other) then return t[pair](t, other) end
    if type(other) == "table" then return t[along](t, other) end
    return t[along](t, other, keepdim or false)
  end
end

-- Whether the shapes are equal.
local function check_pair(a, b, op)
  check_tensor(a, op, "self")
  check_tensor(b, op, "other")
  if a.ndim ~= b.ndim then return false end
  local sa, sb = a:shape(), b:shape()
  for i = 1, #sa do if sa[i] ~= sb[i] then return false end end
  return true
end

--- True when shape, dtype and every value are the same.
---@param a argand.Tensor
---@param b argand.Tensor
---@return boolean
local function equal(a, b)
  if not check_pair(a, b, "equal") or a.dtype ~= b.dtype then return false end
  return core.no_grad(function() return a:eq(b):all():item() end)
end

--- True when |a - b| <= atol + rtol * |b| everywhere; NaN equals NaN with equal_nan.
---@param a argand.Tensor
---@param b argand.Tensor
---@param options? argand.AllcloseOptions
---@return boolean
local function allclose(a, b, options)
  options = options_of.read("allclose", options, {rtol = 1e-5, atol = 1e-8, equal_nan = false})
  if not check_pair(a, b, "allclose") then return false end
  local rtol, atol = options.rtol, options.atol
  return core.no_grad(function()
    local x, y = a:to("f64"), b:to("f64")
    local near = (x - y):abs():le(y:abs() * rtol + atol):logical_and(y:isfinite()):logical_or(x:eq(y))
    if options.equal_nan then near = near:logical_or(x:isnan():logical_and(y:isnan())) end
    return near:all():item()
  end)
end

--- Copies source, broadcast and converted, into t.
---@param t argand.Tensor
---@param source argand.Tensor
---@return argand.Tensor t
local function copy_(t, source)
  check_tensor(t, "copy_", "self")
  check_tensor(source, "copy_", "source")
  t[{}] = source:to(t.device)
  return t
end

--- Sets every element.
---@param t argand.Tensor
---@param value number|boolean
---@return argand.Tensor t
local function fill_(t, value)
  check_tensor(t, "fill_", "self")
  if type(value) ~= "number" and type(value) ~= "boolean" then
    core.raise("argument", "fill_", "value: expected a number, got " .. type(value))
  end
  t[{}] = value
  return t
end

-- Of an op or a collective; one that there is not raises.
local function supports_of(op, dtype, device)
  -- gather and scatter are ops, too; dist.supports asks for the collectives of those names.
  if not collectives[op] or core[op] then return core.supports(op, dtype, device) end
  local is_supported, reason = core.dist.supports(op, nil, dtype, device)
  return is_supported and "native", reason
end

--- How an op or a collective would run on this tensor: "native" or "composed", or false and the reason.
---@param t argand.Tensor
---@param op string
---@return string|false word, string? reason
local function supports(t, op)
  check_tensor(t, "supports", "self")
  return supports_of(op, t.dtype, t.device)
end

--- Adds these functions to the module, and to the methods of tensors.
---@param ag table
---@param methods table<string, function>
function M.install(ag, methods)
  local shared = {
    split = split, chunk = chunk, unbind = unbind, equal = equal, allclose = allclose,
    max = extreme("amax", "max_dim", "maximum"), min = extreme("amin", "min_dim", "minimum"),
  }
  for name, fn in pairs(shared) do
    methods[name] = fn
    ag[name] = fn
  end
  methods.data = data
  methods.copy_ = copy_
  methods.fill_ = fill_
  methods.zero_ = function(t) return fill_(t, 0) end
  methods.supports = supports
  methods.t = function(t)
    check_tensor(t, "t", "self")
    return t:transpose()
  end
  methods["repeat"] = methods.tile
  ag.einsum = require("argand.einsum").einsum

  --- `ag.supports{op = , dtype = , device = }`: how an op or a collective would run, or false and the reason.
  ---@param query {op: string, dtype?: argand.Dtype, device?: string}
  ---@return string|false word, string? reason
  ag.supports = function(query)
    local read = options_of.read("supports", query, {op = options_of.optional.string, dtype = "f32", device = "cpu"})
    if not read.op then core.raise("argument", "supports", "op: expected the name of an op, got nothing") end
    return supports_of(read.op, read.dtype, read.device)
  end
  --- The names of the devices there are; the first is the default.
  ---@return string[]
  ag.devices = function()
    local names = {}
    for i, device in ipairs(core.device_list()) do names[i] = device.name end
    return names
  end
end

return M
