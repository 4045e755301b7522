--- print: tostring of tensors and of error objects where it meets Lua: one call each; lua/format has the layouts.
local ag = require "argand"

describe("tostring", function()
  it("shows a tensor of any dtype, device and layout without changing it", function()
    for _, dtype in ipairs {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"} do
      local text = tostring(ag.tensor({{1, 0}, {0, 1}}, {dtype = dtype}):transpose())
      assert.is_truthy(text:find(dtype .. "[2, 2]", 1, true))
    end
    assert.is_truthy(tostring(ag.ones(2):to("reference")):find("reference", 1, true))
    assert.is_truthy(tostring(ag.ones(2, {requires_grad = true})):find("f32[2]", 1, true))
  end)

  it("is short for large tensors, and for views past 2^31 elements", function()
    assert(#tostring(ag.zeros(1000, 1000)) < 2000)
    assert(#tostring(ag.tensor({3}, {dtype = "i8"}):expand(2 ^ 33)) < 500)
  end)

  it("survives NaN, infinities, empty and 0-d tensors", function()
    assert.is_truthy(tostring(ag.tensor {0 / 0, math.huge, -math.huge}):find "nan")
    assert.is_string(tostring(ag.zeros(0, 3)))
    assert.is_string(tostring(ag.tensor(5)))
  end)
end)
