--- data: the FFI pointer to a tensor's elements, and how long it lives.
local ag = require "argand"
local ffi = require "ffi"
local cases = require "support.cases"

local function code_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err.code
end

describe("t:data()", function()
  it("points to the elements, in each dtype", function()
    local types = {
      f64 = "double", f32 = "float", f16 = "uint16_t", bf16 = "uint16_t", i64 = "int64_t", i32 = "int32_t", i16 = "int16_t",
      i8 = "int8_t", u8 = "uint8_t", bool = "uint8_t",
    }
    local check = cases.begin()
    for dtype, name in pairs(types) do
      check(dtype, function()
        local t = ag.tensor({1, 0, 1}, {dtype = dtype})
        local p = t:data()
        assert.is_true(ffi.istype(name .. " *", p))
        local one = t:to("f64"):eq(1):to(dtype):data()[0] -- 1 in this dtype, or its bits
        assert.equal(tonumber(one), tonumber(p[0]))
        assert.equal(0, tonumber(p[1]))
        p[1] = one
        assert.equal(3, t:to("f64"):sum():item())
      end)
    end
    check("half bits", function()
      assert.equal(0x3c00, ag.tensor({1}, {dtype = "f16"}):data()[0])
      assert.equal(0x3f80, ag.tensor({1}, {dtype = "bf16"}):data()[0])
    end)
    check("of a view", function() assert.equal(3, ag.tensor {{1, 2}, {3, 4}}[2]:data()[0]) end)
    check("strided", function() assert.equal("state", code_of(function() return ag.ones(2, 3):transpose():data(), 1 end)) end)
    check.done()
  end)

  it("keeps the tensor alive", function()
    local p = ag.arange(1, 100001):data()
    for _ = 1, 3 do
      collectgarbage()
      ag.ones(100000):mul_(7)
    end
    for i = 0, 99999 do if p[i] ~= i + 1 then error("element " .. i .. " was overwritten") end end
  end)
end)
