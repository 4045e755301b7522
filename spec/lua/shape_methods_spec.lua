--- shape methods: split, chunk, unbind, max and min in their forms, comparisons of whole tensors, and views.
local ag = require "argand"
local cases = require "support.cases"

local function code_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err.code
end

local function lists(parts)
  local result = {}
  for i, t in ipairs(parts) do result[i] = t:tolist() end
  return result
end

describe("parts", function()
  local v, t = ag.arange(1, 8), ag.arange(1, 7):reshape(2, 3)

  it("are views along a dim", function()
    local check = cases.begin()
    local list = {
      {"split", v:split(3), {{1, 2, 3}, {4, 5, 6}, {7}}}, {"split of one", v:split(99), {{1, 2, 3, 4, 5, 6, 7}}}, {"split by sizes", v:split {2, 0, 5}, {{1, 2}, {}, {3, 4, 5, 6, 7}}},
      {"split by sizes that end in 0", v:split {7, 0}, {{1, 2, 3, 4, 5, 6, 7}, {}}}, {"split along a dim", t:split(2, 2), {{{1, 2}, {4, 5}}, {{3}, {6}}}},
      {"split from the end", t:split(1, -2), {{{1, 2, 3}}, {{4, 5, 6}}}}, {"split of nothing", ag.zeros(0):split(2), {{}}}, {"chunk", v:chunk(3), {{1, 2, 3}, {4, 5, 6}, {7}}},
      {"chunk into more than there are", ag.arange(1, 3):chunk(5), {{1}, {2}}}, {"chunk along a dim", t:chunk(2, -1), {{{1, 2}, {4, 5}}, {{3}, {6}}}},
      {"unbind", t:unbind(), {{1, 2, 3}, {4, 5, 6}}}, {"unbind along a dim", t:unbind(2), {{1, 4}, {2, 5}, {3, 6}}}, {"as a function", ag.split(v, 4), {{1, 2, 3, 4}, {5, 6, 7}}},
    }
    for _, case in ipairs(list) do check(case[1], function() assert.same(case[3], lists(case[2])) end) end
    check("share the storage", function() assert.is_true(v:split(3)[2]:shares_storage(v) and t:unbind(2)[3]:shares_storage(t)) end)
    check.done()
  end)

  it("refuse what does not fit", function()
    local check = cases.begin()
    local list = {
      {"value", v.split, v, 0}, {"value", v.split, v, 1.5}, {"value", v.split, v, "a"}, {"value", v.split, v, {3, 3}}, {"value", v.split, v, {8, -1}}, {"value", v.split, v, 0 / 0},
      {"index", v.split, v, 2, 2}, {"index", v.split, v, 2, 0}, {"index", v.split, v, 2, "x"}, {"value", v.chunk, v, 0}, {"value", v.chunk, v, 2.5}, {"value", v.chunk, v},
      {"index", v.unbind, v, -2}, {"index", v.unbind, ag.tensor(1)}, {"argument", ag.split, 5, 2}, {"argument", ag.unbind, {}}, {"argument", ag.max, 5}, {"argument", ag.equal, v, 5},
      {"argument", ag.allclose, 5, v}, {"option", v.allclose, v, v, {rtoll = 1}}, {"option", v.allclose, v, v, {rtol = "x"}}, {"device", v.equal, v, v:to "reference"},
    }
    for i, case in ipairs(list) do check("case " .. i, function() assert.equal(case[1], code_of(unpack(case, 2))) end) end
    check.done()
  end)
end)

describe("max and min", function()
  local t = ag.tensor {{1, 9, 2}, {8, 3, 7}}

  it("are of all, along a dim with positions, or of two tensors", function()
    assert.equal(9, t:max():item())
    assert.equal(1, t:min():item())
    local values, positions = t:max(2)
    assert.same({9, 8}, values:tolist())
    assert.same({2, 1}, positions:tolist())
    values, positions = t:min(1, true)
    assert.same({{1, 3, 2}}, values:tolist())
    assert.same({{1, 2, 1}}, positions:tolist())
    values = t:max {dim = -1, keepdim = true}
    assert.same({{9}, {8}}, values:tolist())
    assert.same({{5, 9, 5}, {8, 5, 7}}, t:max(ag.tensor(5)):tolist())
    assert.same({{1, 4, 2}, {4, 3, 4}}, ag.min(t, ag.tensor {4, 4, 4}):tolist())
  end)
end)

describe("comparisons of whole tensors", function()
  it("tell equal from close", function()
    local check = cases.begin()
    local a = ag.tensor {1, 2, 0 / 0}
    local one = ag.tensor {1, 2}
    local list = {
      {"same", one:equal(one), true}, {"copy", one:equal(one:clone()), true}, {"other value", one:equal(ag.tensor {1, 3}), false}, {"other shape", one:equal(ag.tensor {{1, 2}}), false},
      {"other dtype", one:equal(one:to "f64"), false}, {"NaN", a:equal(a), false}, {"empty", ag.zeros(0):equal(ag.zeros(0)), true}, {"0-d", ag.tensor(1):equal(ag.tensor(1)), true},
      {"close", one:allclose(one + 1e-6), true}, {"not close", one:allclose(one + 1e-3), false}, {"by rtol", one:allclose(one * 1.05, {rtol = 0.1}), true},
      {"by atol", one:allclose(one + 0.05, {atol = 0.1}), true}, {"NaN is not close", a:allclose(a), false}, {"NaN when asked", a:allclose(a, {equal_nan = true}), true},
      {"infinities", ag.tensor {math.huge}:allclose(ag.tensor {math.huge}), true}, {"infinities of both signs", ag.tensor {math.huge}:allclose(ag.tensor {-math.huge}), false},
      {"dtypes mixed", one:allclose(one:to "i64"), true}, {"bools", ag.tensor {true}:allclose(ag.tensor {true}), true}, {"other shapes are not close", one:allclose(ag.ones(3)), false},
    }
    for _, case in ipairs(list) do check(case[1], function() assert.equal(case[3], case[2]) end) end
    check.done()
  end)
end)

describe("copies", function()
  it("are made where they have to be", function()
    local t = ag.arange(1, 7):reshape(2, 3)
    local u = t:transpose()
    assert.is_true(u:shares_storage(t))
    assert.is_false(u:contiguous():shares_storage(t))
    assert.same({{1, 4}, {2, 5}, {3, 6}}, u:contiguous():tolist())
    assert.is_true(u:contiguous().is_contiguous)
    assert.is_true(t:reshape(6):shares_storage(t))
    assert.is_false(u:reshape(6):shares_storage(t))
    assert.equal("shape", code_of(function() local y = u:view(6) return y end))
    assert.is_false(t:clone():shares_storage(t))
    assert.is_true(t:detach():shares_storage(t))
  end)

  it("answer what ops can do", function()
    assert.equal("native", ag.supports {op = "matmul"})
    local ok, reason = ag.ones(2, {dtype = "i64"}):supports "softmax"
    assert(ok or #reason > 0)
    assert.equal("argument", code_of(ag.supports, {op = "nothing"}))
    assert.equal("argument", code_of(ag.supports, {}))
    assert.equal("option", code_of(ag.supports, {op = "add", type = "f32"}))
    assert.equal("dtype", code_of(ag.supports, {op = "add", dtype = "f1"}))
    assert.equal("device", code_of(ag.supports, {op = "add", device = "moon"}))
    assert.same({"cpu", "reference"}, ag.devices())
  end)
end)
