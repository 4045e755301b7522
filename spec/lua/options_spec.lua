--- options: how arguments are passed: in order, as consecutive numbers or lists, in a last table of options, out=.
local ag = require "argand"
local cases = require "support.cases"

local function error_of(fn)
  local ok, err = pcall(fn)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err
end

describe("arguments", function()
  local x = ag.arange(1, 25):reshape(2, 3, 4)

  it("come in order, as lists, or by name", function()
    local check = cases.begin()
    local list = {
      {"consecutive sizes", ag.zeros(2, 3), {2, 3}}, {"a list of sizes", ag.zeros {2, 3}, {2, 3}}, {"sizes by name", ag.zeros {shape = {2, 3}}, {2, 3}},
      {"no sizes", ag.zeros {}, {}}, {"sizes and options", ag.zeros(2, 3, {dtype = "i8"}), {2, 3}}, {"list and options", ag.zeros({4}, {dtype = "f64"}), {4}},
      {"list and positional dtype", ag.zeros({4}, "f64"), {4}}, {"list and value", ag.full({2}, 7), {2}},
      {"dims in a row", x:sum(1, 3), {3}}, {"dims in a list", x:sum({1, 3}), {3}}, {"dims and a flag", x:sum(1, 3, true), {1, 3, 1}},
      {"dims by name", x:sum {dims = {1, 3}, keepdim = true}, {1, 3, 1}}, {"one dim by name", x:sum {dims = 2}, {2, 4}}, {"dims from the end", x:sum(-1, -2), {2}},
      {"nil for a default", x:sum(nil, true), {1, 1, 1}}, {"an empty list of dims", x:sum({}), {2, 3, 4}},
      {"view sizes", x:reshape(4, -1), {4, 6}}, {"view sizes in a list", x:reshape {4, -1}, {4, 6}}, {"permute", x:permute(3, 1, 2), {4, 2, 3}},
      {"expand", ag.ones(3):expand(2, -1), {2, 3}}, {"tile", ag.ones(3):tile(2, 2), {2, 6}}, {"pad", ag.ones(3):pad({1, 2}, 5), {6}},
      {"as a function", ag.sum(x, 1), {3, 4}}, {"transpose", x:transpose(1, 3), {4, 3, 2}}, {"the t method", ag.ones(2, 5):t(), {5, 2}},
      {"permute in a list", x:permute {2, 1, 3}, {3, 2, 4}}, {"flip", x:flip(1, 2), {2, 3, 4}},
    }
    for _, case in ipairs(list) do check(case[1], function() assert.same(case[3], case[2]:shape()) end) end
    check("requires_grad of a fresh one", function() assert.is_true(ag.randn(2, {requires_grad = true}).requires_grad) end)
    check("device of a fresh one", function() assert.equal("reference", ag.ones(2, {device = "reference"}).device) end)
    check.done()
  end)

  it("are refused with what would have been right", function()
    local check = cases.begin()
    local list = {
      {function() return x:sum {keepdims = true}, 1 end, "option", "keepdims", 'did you mean "keepdim"? The signature is sum(x: any, dims?: dims, keepdim: flag = false)'},
      {function() return x:sum {axis = 1}, 1 end, "option", "axis", "the signature is sum(x: any, dims?: dims, keepdim: flag = false)"},
      {function() return ag.zeros(2, {dytpe = "f32"}), 1 end, "option", "dytpe"},
      {function() return ag.zeros(2, {require_grad = true}), 1 end, "option", "require_grad"},
      {function() return x:exp {requires_grad = true}, 1 end, "option", "requires_grad"},
      {function() return x:sum(1, {dims = 2}), 1 end, "option", "dims"},
      {function() return x:sum(1, true, 5), 1 end, "argument", nil, "the signature is sum(x: any, dims?: dims, keepdim: flag = false)"},
      {function() return x:softmax(1, 2), 1 end, "argument"}, {function() return x:softmax(1.5), 1 end, "argument", "dim"},
      {function() return x:softmax("a"), 1 end, "argument", "dim"}, {function() return x:softmax(0), 1 end, "index", "dim"},
      {function() return x:softmax(4), 1 end, "index", "dim"}, {function() return x:softmax(-4), 1 end, "index", "dim"},
      {function() return x:softmax(0 / 0), 1 end, "argument", "dim"}, {function() return x:softmax(true), 1 end, "argument", "dim"},
      {function() return x:softmax {{}}, 1 end, "argument", "dim"}, {function() return x:softmax(print), 1 end, "argument", "dim"},
      {function() return x:sum {1, 1}, 1 end, "value", "dims"}, {function() return x:sum {1, keepdim = true}, 1 end, "argument", "dims"},
      {function() return x:sum {1, "2"}, 1 end, "argument", "dims"}, {function() return x:sum {keepdim = 1}, 1 end, "argument", "keepdim"},
      {function() return ag.zeros(2, {dtype = "float"}), 1 end, "argument", "dtype"}, {function() return ag.zeros(2, {dtype = 1}), 1 end, "argument", "dtype"},
      {function() return ag.zeros(2, {device = "gpu"}), 1 end, "device", "device"}, {function() return ag.zeros("2"), 1 end, "argument", "shape"},
      {function() return ag.zeros {2, 3, dtype = "f64"}, 1 end, "argument", "shape"}, {function() return ag.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1), 1 end, "shape", "shape"},
      {function() return ag.zeros(), 1 end, "argument", "shape"}, {function() return ag.full({2}), 1 end, "argument", "value"},
      {function() return ag.add(x), 1 end, "argument", "b"}, {function() return ag.sum(), 1 end, "argument", "x"}, {function() return ag.sum("x"), 1 end, "argument", "x"},
      {function() return x:mse_loss(x, "median"), 1 end, "argument", "reduction"}, {function() return x:pad({1, 1}, 0, "mirror"), 1 end, "argument", "mode"},
      {function() return ag.cat(x, 1), 1 end, "argument", "tensors"}, {function() return ag.cat({x, 5}), 1 end, "argument", "tensors"},
      {function() return ag.cat {}, 1 end, "argument", "tensors"}, {function() return ag.rand(2, {generator = 5}), 1 end, "argument", "generator"},
      {function() return x:index_select(1, 1.5), 1 end, "argument", "index"}, {function() return x:masked_fill(1, 0), 1 end, "argument", "mask"},
    }
    for i, case in ipairs(list) do
      check("case " .. i, function()
        local err = error_of(case[1])
        assert.equal(case[2], err.code)
        if case[3] then assert.equal(case[3], err.arg) end
        if case[4] then assert.equal(case[4], err.hint) end
      end)
    end
    check.done()
  end)
end)

describe("out=", function()
  it("takes the result and is returned", function()
    local check = cases.begin()
    local a, b = ag.tensor {1, 2}, ag.tensor {10, 20}
    local list = {
      {"elementwise", function(out) return ag.add(a, b, {out = out}) end, {11, 22}},
      {"with an alias of an input", function(out) out:copy_(a) return out:mul(b, {out = out}) end, {10, 40}},
      {"reduction", function(out) return ag.ones(3, 2):sum(1, {out = out}) end, {3, 3}},
      {"view", function(out) return a:flip(1):reshape({2}, {out = out}) end, {2, 1}},
      {"creation", function(out) return ag.ones(2, {out = out}) end, {1, 1}},
      {"of another float dtype", function(out) return a:to("f64"):add(b, {out = out}) end, {11, 22}},
      {"ints into floats", function(out) return ag.add(ag.tensor({1, 2}, {dtype = "i32"}), 1, {out = out}) end, {2, 3}},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local out = ag.zeros(2)
        assert.is_true(case[2](out) == out)
        assert.same(case[3], out:tolist())
      end)
    end
    check("into a column", function()
      local t = ag.zeros(2, 2)
      ag.add(a, b, {out = t[{":", 1}]})
      assert.same({{11, 0}, {22, 0}}, t:tolist())
    end)
    check("overlapping its input", function()
      local t = ag.arange(1, 5)
      t[{{1, 3}}]:add(0, {out = t[{{2, 4}}]})
      assert.same({1, 1, 2, 3}, t:tolist())
    end)
    check.done()
  end)

  it("is refused where it does not fit", function()
    local check = cases.begin()
    local a = ag.tensor {1, 2}
    local tracked = ag.ones(2, {requires_grad = true})
    local list = {
      {"shape", function() return a:exp {out = ag.zeros(3)}, 1 end}, {"kind", function() return a:exp {out = ag.zeros(2, {dtype = "i64"})}, 1 end},
      {"device", function() return a:exp {out = ag.zeros(2):to("reference")}, 1 end}, {"argument", function() return a:exp {out = 5}, 1 end},
      {"option", function() return a:sort(1, false, {out = ag.zeros(2)}), 1 end}, {"option", function() return a:exp_ {out = ag.zeros(2)}, 1 end},
      {"autodiff", function() return tracked:exp {out = ag.zeros(2)}, 1 end}, {"autodiff", function() return a:exp {out = tracked}, 1 end},
      {"state", function() return a:exp {out = ag.zeros(1):expand(2)}, 1 end}, {"shape", function() return a:masked_select(a:gt(1), {out = ag.zeros(2)}), 1 end},
    }
    for i, case in ipairs(list) do
      check("case " .. i, function()
        local err = error_of(case[2])
        assert.equal(case[1], err.code)
      end)
    end
    check("the message names out", function() assert.equal("out", error_of(list[1][2]).arg) end)
    check.done()
  end)
end)
