--- construct: tensors out of Lua values and back, fields, elements, conversions.
local ag = require "argand"
local cases = require "support.cases"

local dtypes = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"}

local function code_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err.code
end

describe("ag.tensor", function()
  it("takes numbers, booleans and nested tables", function()
    local check = cases.begin()
    local list = {
      {7, {}, "f32"}, {true, {}, "bool"}, {{}, {0}, "f32"}, {{{}}, {1, 0}, "f32"}, {{{}, {}}, {2, 0}, "f32"},
      {{1, 2, 3}, {3}, "f32"}, {{{1, 2}, {3, 4}, {5, 6}}, {3, 2}, "f32"}, {{true, false}, {2}, "bool"},
      {{{{{{{{{5}}}}}}}}, {1, 1, 1, 1, 1, 1, 1, 1}, "f32"},
    }
    for i, case in ipairs(list) do
      check("value " .. i, function()
        local t = ag.tensor(case[1])
        assert.same(case[2], t:shape())
        assert.equal(case[3], t.dtype)
        if #case[2] > 0 then assert.same(case[1], t:tolist()) else assert.equal(case[1], t:item()) end
      end)
    end
    for _, dtype in ipairs(dtypes) do
      check(dtype, function()
        local t = ag.tensor({{1, 2}, {3, 100}}, {dtype = dtype})
        assert.equal(dtype, t.dtype)
        assert.same({{1, 2}, {3, 100}}, t:tolist())
      end)
    end
    check("fractions are cut for ints", function()
      assert.same({1, -1}, ag.tensor({1.9, -1.9}, {dtype = "i32"}):tolist())
    end)
    check("limits of ints", function()
      assert.same({-128, 127}, ag.tensor({-128, 127}, {dtype = "i8"}):tolist())
      assert.same({-2 ^ 63, 2 ^ 53}, ag.tensor({-2 ^ 63, 2 ^ 53}, {dtype = "i64"}):tolist())
    end)
    check("bool from numbers", function() assert.same({false, true}, ag.tensor({0, 2}, {dtype = "bool"}):tolist()) end)
    check("device", function() assert.equal("reference", ag.tensor({1}, {device = "reference"}).device) end)
    check("requires_grad", function() assert.is_true(ag.tensor({1}, {requires_grad = true}).requires_grad) end)
    check.done()
  end)

  it("refuses what is no tensor", function()
    local check = cases.begin()
    local nine = 1
    for _ = 1, 9 do nine = {nine} end
    local list = {
      {"shape", {{1, 2}, {3}}}, {"shape", {{}, {1}}}, {"argument", {{1}, 2}}, {"argument", {1, {2}}}, {"shape", nine},
      {"argument", {1, true}}, {"argument", {true, 1}}, {"argument", {"1"}}, {"argument", "x"}, {"argument", print},
      {"argument", {1, 2, dtype = "f64"}}, {"argument", {name = 1}}, {"argument", {1, nil, 3}}, {"argument", {ag.ones(2)}},
      {"argument", ag.ones(2)}, {"argument", {1LL}},
      {"value", {0 / 0}, {dtype = "i64"}}, {"value", {math.huge}, {dtype = "i8"}}, {"value", {256}, {dtype = "u8"}},
      {"value", {-1}, {dtype = "u8"}}, {"value", {2 ^ 63}, {dtype = "i64"}},
      {"dtype", {1}, {dtype = "f33"}}, {"argument", {1}, {dtype = 3}}, {"device", {1}, {device = "moon"}},
      {"option", {1}, {dtyp = "f32"}}, {"argument", {1}, "f32"}, {"argument", 1, 2, 3}, {"kind", {1}, {dtype = "i32", requires_grad = true}},
    }
    for i, case in ipairs(list) do
      check("case " .. i, function() assert.equal(case[1], code_of(ag.tensor, unpack(case, 2, 4))) end)
    end
    check("nothing", function() assert.equal("argument", code_of(ag.tensor)) end)
    check("more elements than memory", function() -- shared tables: 256^7 elements out of little
      local t = {}
      for i = 1, 256 do t[i] = i end
      for _ = 1, 6 do
        local outer = {}
        for i = 1, 256 do outer[i] = t end
        t = outer
      end
      local code = code_of(ag.tensor, t)
      assert(code == "memory" or code == "shape", code)
    end)
    check.done()
  end)
end)

describe("a tensor", function()
  it("tells what it is", function()
    local t = ag.zeros(2, 3, {dtype = "i16"})
    assert.same({2, 3}, t:shape())
    assert.same({2, 3}, t:size())
    assert.equal(3, t:size(-1))
    assert.equal(2, t:size(1))
    assert.equal(6, t:numel())
    assert.equal(2, #t)
    assert.equal("i16", t.dtype)
    assert.equal("cpu", t.device)
    assert.equal(2, t.ndim)
    assert.same({3, 1}, t:strides())
    assert.same({1, 3}, t:transpose():strides())
    assert.is_true(t.is_contiguous)
    assert.is_false(t:transpose().is_contiguous)
    assert.is_true(t.is_leaf)
    assert.is_false(t.requires_grad)
    assert.is_nil(t.grad)
    assert.equal(t.version + 1, (function() t:fill_(1) return t.version end)())
    local shape = t:shape()
    shape[1] = 99
    assert.same({2, 3}, t:shape())
  end)

  it("is equal to itself only", function()
    local a, b = ag.ones(2), ag.ones(2)
    assert.is_true(a == a)
    assert.is_false(a == b)
    assert.is_true(a:equal(b))
    assert.is_true(a:fill_(1) == a)
    assert.is_true(ag.add(a, b, {out = b}) == b)
    assert.is_true(a:to("f32") == a)
    assert.is_true(a:contiguous() == a)
  end)

  it("gives and takes single elements", function()
    local check = cases.begin()
    local t = ag.arange(1, 7, {dtype = "i64"}):reshape(2, 3)
    check("get", function() assert.equal(6, t:get(2, 3)) end)
    check("get from the end", function() assert.equal(5, t:get(-1, -2)) end)
    check("set", function()
      assert.is_true(t:set(1, 1, 9) == t)
      assert.equal(9, t:get(1, 1))
    end)
    check("0-d", function() assert.equal(4, ag.tensor(4):get()) end)
    check("bool", function() assert.equal(true, ag.tensor {true}:get(1)) end)
    check("of a view", function() assert.equal(4, t:transpose():get(1, 2)) end)
    check("item", function() assert.equal(6, t[2][3]:item()) end)
    for i, args in ipairs {{0, 1}, {3, 1}, {1, 4}, {-3, 1}, {1.5, 1}, {0 / 0, 1}, {math.huge, 1}, {1}, {1, 2, 3}} do
      check("refused positions " .. i, function() assert.equal("index", code_of(t.get, t, unpack(args))) end)
    end
    check("kind of position", function() assert.equal("argument", code_of(t.get, t, "1", 1)) end)
    check("kind of value", function() assert.equal("argument", code_of(t.set, t, 1, 1, "x")) end)
    check("too many for set", function() assert.equal("index", code_of(t.set, t, 1, 1, 5, 6)) end)
    check("item of many", function() assert.equal("shape", code_of(t.item, t)) end)
    check("# of 0-d", function() assert.equal("shape", code_of(function() local n = #ag.tensor(1) return n end)) end)
    check("size past the end", function() assert.equal("index", code_of(t.size, t, 3)) end)
    check("size of a word", function() assert.equal("argument", code_of(t.size, t, "a")) end)
    check.done()
  end)

  it("has fields that are read, and two that are set", function()
    local t = ag.ones(2)
    t.requires_grad = true
    t.grad = ag.ones(2)
    assert.same({1, 1}, t.grad:tolist())
    t.grad = nil
    assert.is_nil(t.grad)
    ag.ones(2).grad = nil
    local check = cases.begin()
    for _, name in ipairs {"dtype", "device", "ndim", "foo", "shape"} do
      check(name, function() assert.equal("argument", code_of(function() t[name] = 1 end)) end)
    end
    check("read", function() assert.equal("argument", code_of(function() return t.nothing, 1 end)) end)
    check("near name", function()
      local _, err = pcall(function() return t.reshap, 1 end)
      assert.equal('did you mean "reshape"?', err.hint)
    end)
    check("grad of another shape", function() assert.equal("shape", code_of(function() t.grad = ag.ones(3) end)) end)
    check("grad of another dtype", function() assert.equal("dtype", code_of(function() t.grad = ag.ones(2, {dtype = "f64"}) end)) end)
    check("grad of another device", function() assert.equal("device", code_of(function() t.grad = ag.ones(2):to("reference") end)) end)
    check("grad of an untracked one", function() assert.equal("autodiff", code_of(function() ag.ones(2).grad = ag.ones(2) end)) end)
    check("requires_grad of ints", function() assert.equal("kind", code_of(function() ag.ones(2, {dtype = "i64"}).requires_grad = true end)) end)
    check.done()
  end)

  it("is dead once freed", function()
    local t = ag.ones(2, 2)
    local view = t[1]
    t:free()
    t:free()
    assert.equal("freed tensor", tostring(t))
    assert.same({1, 1}, view:tolist())
    local check = cases.begin()
    for name, fn in pairs {
      field = function() return t.dtype, 1 end, method = function() return t:sum(), 1 end, operator = function() return t + 1 end,
      index = function() return t[1], 1 end, assign = function() t[1] = 1 end, key = function() return view[t], 1 end,
      data = function() return t:data(), 1 end, list = function() return ag.cat({view, t}), 1 end, value = function() view[1] = t end,
      inplace = function() t:add_(1) end, out = function() ag.add(view, view, {out = t}) end, length = function() return #t + 1 end,
    } do
      check(name, function() assert.equal("state", code_of(fn)) end)
    end
    check.done()
  end)
end)

describe("conversions", function()
  it("keep values and shape", function()
    local check = cases.begin()
    for _, from in ipairs(dtypes) do
      for _, to in ipairs(dtypes) do
        check(from .. " to " .. to, function()
          local t = ag.tensor({{0, 1, 2}, {3, 4, 100}}, {dtype = from}):to(to)
          assert.equal(to, t.dtype)
          assert.same({{0, 1, 2}, {3, 4, 100}}, t:tolist())
        end)
      end
    end
    check("device and back", function()
      local t = ag.tensor {1, 2}:to("reference")
      assert.equal("reference", t.device)
      assert.same({1, 2}, t:to("cpu"):tolist())
    end)
    check("unknown", function() assert.equal("argument", code_of(function() return ag.ones(1):to("f99"), 1 end)) end)
    check("nothing", function() assert.equal("argument", code_of(function() return ag.ones(1):to(), 1 end)) end)
    check.done()
  end)

  it("copy, fill and clear in place", function()
    local t = ag.zeros(2, 3)
    assert.same({{1, 2, 3}, {1, 2, 3}}, t:copy_(ag.tensor({1, 2, 3}, {dtype = "i64"})):tolist())
    assert.same({{5, 5, 5}, {5, 5, 5}}, t:fill_(5):tolist())
    assert.same({{0, 0, 0}, {0, 0, 0}}, t:zero_():tolist())
    assert.equal(1, t:copy_(ag.ones(1):to("reference")):get(2, 3))
    assert.equal("shape", code_of(t.copy_, t, ag.ones(2)))
    assert.equal("argument", code_of(t.fill_, t, "x"))
    assert.equal("argument", code_of(t.copy_, t, 5))
  end)
end)
