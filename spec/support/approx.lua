--- approx: when two results count as equal. The one place for tolerances by dtype.
local ffi = require "ffi"

local M = {}

--- Distance from 1 to the next number of each float dtype.
M.eps = {f64 = 2 ^ -52, f32 = 2 ^ -23, f16 = 2 ^ -10, bf16 = 2 ^ -7}

--- Bytes an element.
M.sizes = {f64 = 8, f32 = 4, f16 = 2, bf16 = 2, i64 = 8, i32 = 4, i16 = 2, i8 = 1, u8 = 1, bool = 1}

local kinds = {
  f64 = "float", f32 = "float", f16 = "float", bf16 = "float",
  i64 = "int", i32 = "int", i16 = "int", i8 = "int", u8 = "int", bool = "bool",
}
M.kinds = kinds
M.dtypes = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"}

--- The values of t as a pointer to its numbers, 0-based, and what keeps them alive. Floats come as f64, all else as i64.
function M.values(t)
  t = t:detach():to("cpu"):to(kinds[t.dtype] == "float" and "f64" or "i64"):contiguous()
  return t:data(), t
end

function M.shape_text(t) return t.dtype .. "[" .. table.concat(t:shape(), ", ") .. "]" end

local function fail(k, a, b, limit)
  error(("element %d: got %.17g, expected %.17g, off by %.3g, allowed %.3g"):format(
    k + 1, a, b, math.abs(a - b), limit), 0)
end

-- |a - b| <= tolerance * max(|b|, magnitude); NaN equals NaN, infinities by sign.
local function compare_floats(a, b, count, tolerance, magnitude)
  for k = 0, count - 1 do
    local x, y = a[k], b[k]
    if x ~= y and (x == x or y == y) then
      local limit = tolerance * math.max(math.abs(y), magnitude)
      if not (math.abs(x - y) <= limit) or math.abs(y) == math.huge then fail(k, x, y, limit) end
    end
  end
end

local function compare_ints(a, b, count)
  for k = 0, count - 1 do
    if a[k] ~= b[k] then fail(k, tonumber(a[k]), tonumber(b[k]), 0) end
  end
end

-- The same test by ops, which the loop has been used on: quick for large tensors where nothing is wrong.
local function all_near(a, b, tolerance, magnitude)
  local near = (a - b):abs():le(b:abs():clamp(magnitude) * tolerance):logical_and(b:isfinite())
  return near:logical_or(a:eq(b)):logical_or(a:isnan():logical_and(b:isnan())):all():item()
end

local large = 4096 -- elements from which on all_near is tried first

--- Raises unless actual and expected have one shape and one dtype and their values agree: ints exactly, floats within
-- `ulps` (default 8) times the dtype's eps, relative to the larger of the expected value and `magnitude` (default 1).
---@param options? {ulps: number?, magnitude: number?, tolerance: number?}
function M.check(actual, expected, options)
  options = options or {}
  local got, wanted = M.shape_text(actual), M.shape_text(expected)
  if got ~= wanted then error(("got %s, expected %s"):format(got, wanted), 0) end
  local count = tonumber(actual:numel())
  if count == 0 then return end
  local a, keep_a = M.values(actual)
  local b, keep_b = M.values(expected)
  if kinds[actual.dtype] == "float" then
    local tolerance, magnitude = options.tolerance or (options.ulps or 8) * M.eps[actual.dtype], options.magnitude or 1
    if count >= large and all_near(keep_a, keep_b, tolerance, magnitude) then return end
    compare_floats(a, b, count, tolerance, magnitude)
  elseif count < large or not keep_a:eq(keep_b):all():item() then
    compare_ints(a, b, count)
  end
  return keep_a, keep_b -- values() points into them
end

--- Raises unless both tensors hold the same bytes.
function M.check_bitwise(actual, expected)
  local got, wanted = M.shape_text(actual), M.shape_text(expected)
  if got ~= wanted then error(("got %s, expected %s"):format(got, wanted), 0) end
  local a, b = actual:detach():contiguous(), expected:detach():contiguous()
  local count = tonumber(a:numel())
  if count == 0 then return end
  local pa, pb = a:data(), b:data()
  local size = count * M.sizes[a.dtype]
  if ffi.string(pa, size) ~= ffi.string(pb, size) then error("bytes differ", 0) end
end

return M
