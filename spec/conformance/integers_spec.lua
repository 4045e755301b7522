-- Whole numbers at their limits: results wrap, divisions by 0 are refused, nothing is lost above 2^53.
local ffi = require "ffi"
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"

-- Smallest and largest number of each int dtype, as 64-bit integers.
local limits = {
  i64 = {-0x7fffffffffffffffLL - 1, 0x7fffffffffffffffLL}, i32 = {-0x80000000LL, 0x7fffffffLL}, i16 = {-0x8000LL, 0x7fffLL},
  i8 = {-0x80LL, 0x7fLL}, u8 = {0LL, 0xffLL},
}
local bits = {i64 = 64, i32 = 32, i16 = 16, i8 = 8, u8 = 8}

-- An int tensor of 64-bit numbers, which plain Lua numbers cannot all hold.
local function exact(values, dtype, device)
  local t = ag.zeros(#values, {dtype = "i64"})
  local p = t:data()
  for i, v in ipairs(values) do p[i - 1] = v end
  return t:to(dtype):to(device or "cpu")
end

-- v as the dtype holds it.
local function wrapped(v, dtype)
  local width = bits[dtype]
  if width == 64 then return v end
  v = ffi.cast("int64_t", v) % (2LL ^ width)
  if v < 0 then v = v + 2LL ^ width end
  if dtype ~= "u8" and v >= 2LL ^ (width - 1) then v = v - 2LL ^ width end
  return v
end

local function edges(dtype)
  local low, high = unpack(limits[dtype])
  return {low, low + 1, high, high - 1, 0LL, 1LL, dtype == "u8" and 2LL or -1LL, 3LL, 100LL}
end

-- All pairs of edges as two tensors.
local function pairs_of(dtype, device, accept)
  local a, b = {}, {}
  for _, x in ipairs(edges(dtype)) do
    for _, y in ipairs(edges(dtype)) do
      if not accept or accept(y) then
        a[#a + 1] = x
        b[#b + 1] = y
      end
    end
  end
  return exact(a, dtype, device), exact(b, dtype, device), a, b
end

local function check_values(t, expected)
  local values, keep = approx.values(t)
  for i, v in ipairs(expected) do
    if values[i - 1] ~= v then error(("element %d: got %s, expected %s"):format(i, tostring(values[i - 1]), tostring(v)), 0) end
  end
  return keep
end

local function is_not_zero(v) return v ~= 0 end

-- What the ops mean over 64-bit integers; the results are then wrapped to the dtype.
local meanings = {
  add = function(a, b) return a + b end,
  sub = function(a, b) return a - b end,
  mul = function(a, b) return a * b end,
  maximum = function(a, b) return a > b and a or b end,
  minimum = function(a, b) return a < b and a or b end,
}

local function smallest_by_minus_one(a, b, dtype) return b == -1 and a == limits[dtype][1] end

local function truncated(a, b) return b == -1 and -a or a / b end

local function floored(a, b)
  local quotient = truncated(a, b)
  if b ~= -1 and a % b ~= 0 and (a < 0) ~= (b < 0) then return quotient - 1 end
  return quotient
end

local divisions = {
  floor_divide = floored,
  remainder = function(a, b) return b == -1 and 0LL or a - floored(a, b) * b end,
  fmod = function(a, b) return b == -1 and 0LL or a % b end,
}

describe("ints", function()
  it("wrap in sums, differences and products, on every device", function()
    local check = cases.begin()
    for dtype in pairs(limits) do
      for _, device in ipairs(ag.devices()) do
        local a, b, as, bs = pairs_of(dtype, device)
        for op, meaning in pairs(meanings) do
          local expected = {}
          for i = 1, #as do expected[i] = wrapped(meaning(as[i], bs[i]), dtype) end
          check(("%s %s on %s"):format(op, dtype, device), check_values, core[op](a, b), expected)
        end
        local x, list = exact(edges(dtype), dtype, device), edges(dtype)
        local negated, absolute, squared = {}, {}, {}
        for i, v in ipairs(list) do
          negated[i], squared[i] = wrapped(-v, dtype), wrapped(v * v, dtype)
          absolute[i] = wrapped(v < 0 and -v or v, dtype)
        end
        check(("neg %s on %s"):format(dtype, device), check_values, x:neg(), negated)
        check(("abs %s on %s"):format(dtype, device), check_values, x:abs(), absolute)
        check(("square %s on %s"):format(dtype, device), check_values, x:square(), squared)
        check(("bitwise_not %s on %s"):format(dtype, device), check_values, x:bitwise_not(),
          (function() local r = {} for i, v in ipairs(list) do r[i] = wrapped(-v - 1, dtype) end return r end)())
      end
    end
    check.done()
  end)

  it("divide: floored, truncated, the smallest by -1 wraps", function()
    local check = cases.begin()
    for dtype in pairs(limits) do
      for _, device in ipairs(ag.devices()) do
        local a, b, as, bs = pairs_of(dtype, device, is_not_zero)
        for op, meaning in pairs(divisions) do
          local expected = {}
          for i = 1, #as do
            expected[i] = smallest_by_minus_one(as[i], bs[i], dtype) and op == "floor_divide" and limits[dtype][1]
              or wrapped(meaning(as[i], bs[i]), dtype)
          end
          check(("%s %s on %s"):format(op, dtype, device), check_values, core[op](a, b), expected)
        end
      end
    end
    check.done()
  end)

  it("divided by 0 are an error, in tensors and as a number", function()
    local check = cases.begin()
    for dtype in pairs(limits) do
      for _, device in ipairs(ag.devices()) do
        local x, zero = exact({5LL, 7LL}, dtype, device), exact({1LL, 0LL}, dtype, device)
        for op in pairs(divisions) do
          for name, divisor in pairs {tensor = zero, number = 0} do
            check(("%s %s by a %s on %s"):format(op, dtype, name, device), function()
              local ok, err = pcall(core[op], x, divisor)
              assert(not ok and err.code == "value" and err.op == op, tostring(err))
            end)
          end
        end
      end
    end
    check.done()
  end)

  it("shift by 0 to their width, and by more", function()
    local check = cases.begin()
    for dtype, width in pairs(bits) do
      local counts, lefts, rights, high = {}, {}, {}, limits[dtype][2]
      for n = 0, width - 1 do
        counts[#counts + 1] = n + 0LL
        lefts[#lefts + 1] = wrapped(n == 63 and limits.i64[1] or 2LL ^ n, dtype)
        rights[#rights + 1] = n == 63 and 0LL or high / 2LL ^ n
      end
      for _, device in ipairs(ag.devices()) do
        local by = exact(counts, dtype, device)
        local one, most = ag.ones_like(by), ag.zeros_like(by) + exact({high}, dtype, device)
        check(("left %s on %s"):format(dtype, device), check_values, one:bitwise_left_shift(by), lefts)
        check(("right %s on %s"):format(dtype, device), check_values, most:bitwise_right_shift(by), rights)
        check(("left by too much %s on %s"):format(dtype, device), check_values, one:bitwise_left_shift(width),
          {0LL, 0LL})
      end
      local outside = exact({width + 0LL, 127LL, dtype == "u8" and 200LL or -1LL, dtype == "u8" and 255LL or -128LL}, dtype)
      for _, op in ipairs {"bitwise_left_shift", "bitwise_right_shift"} do
        check(op .. " outside " .. dtype, function()
          for _, v in ipairs {high, limits[dtype][1], 1LL} do
            local x = ag.zeros_like(outside) + exact({v}, dtype)
            approx.check(core[op](x, outside), core[op](x:to("reference"), outside:to("reference")):to("cpu"))
          end
        end)
      end
    end
    check.done()
  end)

  it("keep all 64 bits", function()
    local check = cases.begin()
    local big = 2LL ^ 53
    for _, device in ipairs(ag.devices()) do
      local x = exact({big + 1, big + 3, -big - 1, big + 2}, "i64", device)
      local function same(name, t, expected) check(name .. " on " .. device, check_values, t, expected) end
      same("sum", x:sum(), {2 * big + 5})
      same("cumsum", x:cumsum(1), {big + 1, 2 * big + 4, big + 3, 2 * big + 5})
      same("amax", x:amax(), {big + 3})
      same("sort", (x:sort()), {-big - 1, big + 1, big + 2, big + 3})
      same("argmax", x:argmax(), {2LL})
      same("unique", (x:unique()), {-big - 1, big + 1, big + 2, big + 3})
      same("eq", x:eq(exact({big + 1, big + 2, -big, big + 2}, "i64", device)):to("i64"), {1LL, 0LL, 0LL, 1LL})
      same("prod", exact({3LL, big + 1}, "i64", device):prod(), {3 * big + 3})
      same("dot", exact({1LL, 3LL}, "i64", device):dot(exact({1LL, big + 1}, "i64", device)), {3 * big + 4})
      same("clone", x:reshape(2, 2):transpose():clone():transpose():reshape(4), {big + 1, big + 3, -big - 1, big + 2})
      same("gather", x:index_select(1, exact({3LL, 1LL}, "i64", device)), {-big - 1, big + 1})
      same("pow", exact({3LL}, "i64", device):pow(exact({39LL}, "i64", device)), {4052555153018976267LL})
      same("arange", ag.arange(0, 3, {dtype = "i64", device = device}), {0LL, 1LL, 2LL})
    end
    check.done()
  end)

  it("come from floats cut off towards 0, and from bools as 0 and 1", function()
    for _, device in ipairs(ag.devices()) do
      for _, from in ipairs {"f64", "f32", "f16", "bf16"} do
        for dtype in pairs(limits) do
          local x = ag.tensor({0.9, 1.5, 2, 100.5}, {dtype = from}):to(device)
          assert.are.same({0, 1, 2, 100}, x:to(dtype):tolist())
        end
        assert.are.same({-1, 0, -100}, ag.tensor({-1.5, -0.5, -100}, {dtype = from}):to(device):to("i8"):tolist())
      end
      assert.are.same({1, 0}, ag.tensor({true, false}):to(device):to("u8"):tolist())
    end
  end)
end)
