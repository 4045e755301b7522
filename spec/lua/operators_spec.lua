--- operators: the operators of Lua, numbers on both sides, and the dtype that a plain number leaves or makes.
local ag = require "argand"
local cases = require "support.cases"

describe("operators", function()
  it("take tensors and numbers on both sides", function()
    local check = cases.begin()
    local a, b = ag.tensor {1, 2, 4}, ag.tensor {2, 2, 2}
    local list = {
      {"a + b", a + b, {3, 4, 6}}, {"a - b", a - b, {-1, 0, 2}}, {"a * b", a * b, {2, 4, 8}}, {"a / b", a / b, {0.5, 1, 2}},
      {"a % b", a % b, {1, 0, 0}}, {"a ^ b", a ^ b, {1, 4, 16}}, {"-a", -a, {-1, -2, -4}},
      {"a + 1", a + 1, {2, 3, 5}}, {"1 + a", 1 + a, {2, 3, 5}}, {"1 - a", 1 - a, {0, -1, -3}}, {"2 / a", 2 / a, {2, 1, 0.5}},
      {"5 % a", 5 % a, {0, 1, 1}}, {"2 ^ a", 2 ^ a, {2, 4, 16}}, {"-a % 3", -a % 3, {2, 1, 2}},
      {"ag.sub(1, a)", ag.sub(1, a), {0, -1, -3}}, {"a:add(b, 10)", a:add(b, 10), {21, 22, 24}}, {"ag.maximum(2, a)", ag.maximum(2, a), {2, 2, 4}},
      {"ag.where(a:gt(1), 0, a)", ag.where(a:gt(1), 0, a), {1, 0, 0}}, {"ag.add(1, 2)", ag.add(1, 2), 3},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        if type(case[3]) == "number" then assert.equal(case[3], case[2]:item()) else assert.same(case[3], case[2]:tolist()) end
      end)
    end
    check.done()
  end)

  it("let a plain number yield to the tensor's dtype within its kind", function()
    local check = cases.begin()
    for _, dtype in ipairs {"f64", "f32", "f16", "bf16"} do
      local t = ag.ones(2, {dtype = dtype})
      for _, number in ipairs {2, 0.5} do
        check(dtype .. " with " .. number, function()
          assert.equal(dtype, (t * number).dtype)
          assert.equal(dtype, (number - t).dtype)
        end)
      end
    end
    for _, dtype in ipairs {"i64", "i32", "i16", "i8", "u8"} do
      local t = ag.ones(2, {dtype = dtype})
      check(dtype .. " with 2", function()
        assert.equal(dtype, (t * 2).dtype)
        assert.equal(dtype, (2 + t).dtype)
      end)
      check(dtype .. " with 0.5", function()
        assert.equal("f32", (t * 0.5).dtype)
        assert.same({0.5, 0.5}, (t * 0.5):tolist())
      end)
      check(dtype .. " / 2", function() assert.equal("f32", (t / 2).dtype) end)
    end
    check("bool with 2", function() assert.equal("i64", (ag.ones(2, {dtype = "bool"}) * 2).dtype) end)
    check("f32 with f64", function() assert.equal("f64", (ag.ones(1) + ag.ones(1, {dtype = "f64"})).dtype) end)
    check("i64 with f16", function() assert.equal("f16", (ag.ones(1, {dtype = "i64"}) + ag.ones(1, {dtype = "f16"})).dtype) end)
    check("u8 with i8", function() assert.equal("i16", (ag.ones(1, {dtype = "u8"}) + ag.ones(1, {dtype = "i8"})).dtype) end)
    check("0-d tensors are no plain numbers", function()
      assert.equal("f64", (ag.ones(2) * ag.tensor(1, {dtype = "f64"})).dtype)
    end)
    check.done()
  end)

  it("are recorded for gradients", function()
    local x = ag.tensor({2, 3}, {requires_grad = true})
    local y = 1 - 2 / x + x ^ 2 * 3 - -x
    y:sum():backward()
    assert.is_true(x.grad:allclose(ag.tensor {13.5, 19 + 2 / 9}))
  end)

  it("mutate with a trailing _", function()
    local t = ag.ones(2)
    local same = t
    assert.is_true(t:add_(1):mul_(3):sub_(ag.tensor {0, 1}) == same)
    assert.same({6, 5}, same:tolist())
    assert.same({1, 1}, t:clamp_(0, 1):tolist())
    local i = ag.ones(2, {dtype = "i64"})
    i:mul_(3)
    assert.same({3, 3}, i:tolist())
    local view = ag.zeros(2, 2)
    view[1]:add_(5)
    assert.same({{5, 5}, {0, 0}}, view:tolist())
  end)

  it("refuse what has no meaning", function()
    local check = cases.begin()
    local t = ag.ones(2)
    for name, fn in pairs {
      string = function() return t + "x" end, table = function() return {} * t end, boolean = function() return t - true end, ["nil"] = function() return t + nil end,
    } do
      check(name, function()
        local ok, err = pcall(fn)
        assert.is_false(ok)
        assert.equal("argument", err.code)
      end)
    end
    check("concatenation", function() assert.is_false((pcall(function() return t .. "" end))) end)
    check("less than", function() assert.is_false((pcall(function() return t < t end))) end)
    check("call", function() assert.is_false((pcall(function() return t(1), 1 end))) end)
    check.done()
  end)
end)
