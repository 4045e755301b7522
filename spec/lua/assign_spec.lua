--- assign: t[key] = value in all its forms, against the expected content.
local ag = require "argand"
local cases = require "support.cases"

local function code_of(fn)
  local ok, err = pcall(fn)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err.code
end

local function long(list) return ag.tensor(list, {dtype = "i64"}) end

describe("t[key] = value", function()
  it("writes", function()
    local check = cases.begin()
    local list = {
      {"row", function(t) t[1] = 9 end, {{9, 9, 9}, {4, 5, 6}, {7, 8, 9}}},
      {"element", function(t) t[{2, -1}] = 0 end, {{1, 2, 3}, {4, 5, 0}, {7, 8, 9}}},
      {"through a view", function(t) t[2][2] = 0 end, {{1, 2, 3}, {4, 0, 6}, {7, 8, 9}}},
      {"all", function(t) t[{}] = 1 end, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {"column", function(t) t[{":", 2}] = ag.tensor {0, 1, 0} end, {{1, 0, 3}, {4, 1, 6}, {7, 0, 9}}},
      {"broadcast", function(t) t[{{1, 2}}] = ag.tensor {0, 1, 2} end, {{0, 1, 2}, {0, 1, 2}, {7, 8, 9}}},
      {"broadcast along rows", function(t) t[{{2, 3}}] = ag.tensor {{0}, {1}} end, {{1, 2, 3}, {0, 0, 0}, {1, 1, 1}}},
      {"every other", function(t) t[{{1, 3, 2}}] = 0 end, {{0, 0, 0}, {4, 5, 6}, {0, 0, 0}}},
      {"empty range", function(t) t[{{2, 1}}] = 0 end, {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}},
      {"boolean", function(t) t[1] = true end, {{1, 1, 1}, {4, 5, 6}, {7, 8, 9}}},
      {"another dtype", function(t) t[1] = ag.tensor({1, 0, 1}, {dtype = "u8"}) end, {{1, 0, 1}, {4, 5, 6}, {7, 8, 9}}},
      {"overlap down", function(t) t[{{1, 2}}] = t[{{2, 3}}] end, {{4, 5, 6}, {7, 8, 9}, {7, 8, 9}}},
      {"overlap up", function(t) t[{{2, 3}}] = t[{{1, 2}}] end, {{1, 2, 3}, {1, 2, 3}, {4, 5, 6}}},
      {"own transpose", function(t) t[{}] = t:transpose() end, {{1, 4, 7}, {2, 5, 8}, {3, 6, 9}}},
      {"own row everywhere", function(t) t[{}] = t[1] end, {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}},
      {"positions", function(t) t[long {3, 1}] = ag.tensor {{0, 0, 0}, {1, 1, 1}} end, {{1, 1, 1}, {4, 5, 6}, {0, 0, 0}}},
      {"positions, a number", function(t) t[long {-1}] = 0 end, {{1, 2, 3}, {4, 5, 6}, {0, 0, 0}}},
      {"no positions", function(t) t[ag.zeros(0, {dtype = "i64"})] = 0 end, {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}},
      {"positions of another dim", function(t) t[{":", long {1, 3}}] = 0 end, {{0, 2, 0}, {0, 5, 0}, {0, 8, 0}}},
      {"crossing", function(t) t[{long {1, 3}, long {3, 1}}] = ag.tensor {{-1, -2}, {-3, -4}} end, {{-2, 2, -1}, {4, 5, 6}, {-4, 8, -3}}},
      {"2-d positions", function(t) t[{1, long {{1}, {2}}}] = 0 end, {{0, 0, 3}, {4, 5, 6}, {7, 8, 9}}},
      {"mask, a number", function(t) t[t:gt(6)] = 0 end, {{1, 2, 3}, {4, 5, 6}, {0, 0, 0}}},
      {"mask, one value a place", function(t) t[t:gt(7)] = ag.tensor {-1, -2} end, {{1, 2, 3}, {4, 5, 6}, {7, -1, -2}}},
      {"mask, values of another dtype", function(t) t[t:gt(7)] = long {-1, -2} end, {{1, 2, 3}, {4, 5, 6}, {7, -1, -2}}},
      {"mask, same shape", function(t) t[t:gt(6)] = t * 10 end, {{1, 2, 3}, {4, 5, 6}, {70, 80, 90}}},
      {"mask of rows", function(t) t[ag.tensor {true, false, true}] = 0 end, {{0, 0, 0}, {4, 5, 6}, {0, 0, 0}}},
      {"mask of columns", function(t) t[{":", ag.tensor {true, false, false}}] = 0 end, {{0, 2, 3}, {0, 5, 6}, {0, 8, 9}}},
      {"mask of a row's elements", function(t) t[{2, ag.tensor {true, false, true}}] = ag.tensor {0, 1} end, {{1, 2, 3}, {0, 5, 1}, {7, 8, 9}}},
    }
    for _, dtype in ipairs {"f32", "i64"} do
      for _, case in ipairs(list) do
        check(case[1] .. ", " .. dtype, function()
          local t = ag.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, {dtype = dtype})
          local version = t.version
          case[2](t)
          assert.same(case[3], t:tolist())
          assert.equal(dtype, t.dtype)
          assert(t.version > version, "the version stood still")
        end)
      end
    end
    check("to the transpose", function()
      local t = ag.zeros(2, 3)
      t:transpose()[1] = ag.tensor {1, 2}
      assert.same({{1, 0, 0}, {2, 0, 0}}, t:tolist())
    end)
    check("fraction to ints", function()
      local t = ag.zeros(2, {dtype = "i64"})
      t[t:eq(0)] = 2.7
      assert.same({2, 2}, t:tolist())
      t[1] = -1.5
      assert.same({-1, 2}, t:tolist())
    end)
    check("0-d", function()
      local t = ag.tensor(1)
      t[{}] = 5
      assert.equal(5, t:item())
    end)
    check.done()
  end)

  it("refuses what does not fit, and leaves the tensor as it was", function()
    local check = cases.begin()
    local list = {
      {"shape", function(t) t[1] = ag.ones(2) end}, {"shape", function(t) t[1] = ag.ones(2, 3) end},
      {"shape", function(t) t[{}] = ag.ones(3, 3, 3) end}, {"argument", function(t) t[1] = "x" end}, {"argument", function(t) t[1] = {1, 2, 3} end},
      {"argument", function(t) t[1] = nil end}, {"index", function(t) t[4] = 1 end}, {"index", function(t) t[{1, {2, 5}}] = 1 end},
      {"index", function(t) t[long {4}] = 1 end}, {"index", function(t) t[{":", long {0}}] = 1 end},
      {"shape", function(t) t[t:gt(6)] = ag.tensor {1, 2} end}, {"shape", function(t) t[t:gt(6)] = ag.ones(2, 3, 3) end},
      {"shape", function(t) t[long {1, 2}] = ag.ones(3, 3) end}, {"kind", function(t) t[ag.tensor {1.5}] = 1 end},
      {"device", function(t) t[1] = ag.ones(3):to("reference") end}, {"device", function(t) t[t:gt(6)] = ag.ones(1):to("reference") end},
      {"shape", function(t) t[ag.tensor {true}] = 1 end}, {"state", function(t) t[1]:expand(2, 3)[{}] = 1 end},
    }
    for i, case in ipairs(list) do
      check("case " .. i, function()
        local t = ag.arange(1, 10):reshape(3, 3)
        assert.equal(case[1], code_of(function() case[2](t) end))
        assert.same({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, t:tolist())
      end)
    end
    check.done()
  end)

  it("is differentiated", function()
    local check = cases.begin()
    check("range", function()
      local x = ag.ones(2, {requires_grad = true})
      local t = ag.zeros(3) * 1
      t[{{2, 3}}] = x * 3
      (t * t):sum():backward()
      assert.same({18, 18}, x.grad:tolist())
    end)
    check("mask", function()
      local x = ag.ones(3, {requires_grad = true})
      local t = x * 2
      t[ag.tensor {true, false, true}] = 0
      t:sum():backward()
      assert.same({0, 2, 0}, x.grad:tolist())
    end)
    check("positions of another dim", function()
      local x = ag.ones(2, 2, {requires_grad = true})
      local t = x * 2
      t[{":", long {2}}] = 7
      t:sum():backward()
      assert.same({{2, 0}, {2, 0}}, x.grad:tolist())
    end)
    check("leaf", function()
      local x = ag.ones(2, {requires_grad = true})
      assert.equal("autodiff", code_of(function() x[1] = 1 end))
      ag.no_grad(function() x[1] = 5 end)
      assert.same({5, 1}, x:tolist())
    end)
    check.done()
  end)
end)
