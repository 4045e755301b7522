--- index: t[key] against the same selection made element by element in Lua.
local ag = require "argand"
local cases = require "support.cases"

local function code_of(fn)
  local ok, err = pcall(fn)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err.code, err
end

local function long(list) return ag.tensor(list, {dtype = "i64"}) end

describe("t[key]", function()
  local t = ag.arange(1, 25, {dtype = "i64"}):reshape(2, 3, 4)

  it("selects", function()
    local check = cases.begin()
    local list = {
      {"position", function() return t[2][3] end, {21, 22, 23, 24}},
      {"position from the end", function() return t[-1][-3] end, {13, 14, 15, 16}},
      {"list of positions", function() return t[{2, 3}] end, {21, 22, 23, 24}},
      {"all positions", function() return t[{2, 3, 4}] end, 24},
      {"everything", function() return t[{":", 1, 1}] end, {1, 13}},
      {"range", function() return t[{1, {2, 3}, 1}] end, {5, 9}},
      {"range from the end", function() return t[{1, 1, {-2, -1}}] end, {3, 4}},
      {"range with a step", function() return t[{1, 1, {1, 4, 2}}] end, {1, 3}},
      {"range with a step past the end", function() return t[{1, 1, {2, 4, 5}}] end, {2}},
      {"open range", function() return t[{1, 1, {3}}] end, {3, 4}},
      {"empty range", function() return t[{1, 1, {3, 2}}] end, {}},
      {"empty range at the end", function() return t[{1, 1, {5, 4}}] end, {}},
      {"empty range at the start", function() return t[{1, 1, {1, 0}}] end, {}},
      {"no items", function() return t[{}][{1, 1}] end, {1, 2, 3, 4}},
      {"positions tensor", function() return t[{1, long {3, 1}, 2}] end, {10, 2}},
      {"positions from the end", function() return t[{1, long {-1, -3}, 2}] end, {10, 2}},
      {"0-d positions tensor", function() return t[{1, ag.tensor(3, {dtype = "i32"}), 2}] end, 10},
      {"2-d positions tensor", function() return t[{1, 1, long {{1, 2}, {4, 4}}}] end, {{1, 2}, {4, 4}}},
      {"empty positions tensor", function() return t[{1, 1, ag.zeros(0, {dtype = "i64"})}] end, {}},
      {"2-d empty positions tensor", function() return t[{1, 1, ag.zeros(2, 0, {dtype = "i64"})}] end, {{}, {}}},
      {"crossing of two", function() return t[{1, long {1, 3}, long {4, 1}}] end, {{4, 1}, {12, 9}}},
      {"mask of a dim", function() return t[{1, ag.tensor {true, false, true}, 1}] end, {1, 9}},
      {"mask of rows", function() return t[1][ag.tensor {false, true, false}] end, {{5, 6, 7, 8}}},
      {"mask of all", function() return t[t:gt(22)] end, {23, 24}},
      {"mask of none", function() return t[t:gt(99)] end, {}},
      {"positions along the first dim", function() return t[long {2, 2}][{":", 1, 1}] end, {13, 13}},
      {"range then position then mask", function() return t[{{2, 2}, -1, ag.tensor {true, true, false, false}}] end, {{21, 22}}},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local got = case[2]()
        if type(case[3]) == "number" then assert.equal(case[3], got:item()) else assert.same(case[3], got:tolist()) end
      end)
    end
    check.done()
  end)

  it("selects every range of every step as Lua loops do", function()
    local check = cases.begin()
    local v = ag.arange(1, 8, {dtype = "i64"})
    for first = 1, 8 do
      for last = first - 1, 7 do
        for step = 1, 4 do
          check(("{%d, %d, %d}"):format(first, last, step), function()
            local expected = {}
            for i = first, last, step do expected[#expected + 1] = i end
            assert.same(expected, v[{{first, last, step}}]:tolist())
          end)
        end
      end
    end
    check.done()
  end)

  it("gives views of positions and ranges", function()
    assert.is_true(t[1]:shares_storage(t))
    assert.is_true(t[{":", {2, 3}}]:shares_storage(t))
    assert.is_false(t[long {1}]:shares_storage(t))
  end)

  it("differentiates", function()
    local x = ag.ones(3, 3, {requires_grad = true})
    local parts = {x[2], x[{":", {1, 2}}]:sum(2), x[x:gt(0)]:reshape(3, 3)[1], x[{long {3, 3}, 1}]:sum()}
    ag.add(parts[1] + parts[2] + parts[3], parts[4]):sum():backward()
    assert.same({{2, 2, 1}, {2, 2, 1}, {7, 1, 0}}, x.grad:tolist())
  end)

  it("refuses what is not there, in the user's own numbers", function()
    local check = cases.begin()
    local list = {
      {"index", function() return t[3], 1 end, "expected 1 to 2, or -2 to -1, got 3 in dim 1"},
      {"index", function() return t[0], 1 end, "expected a position from 1 on, or a negative one from the end, got 0 in dim 1"},
      {"index", function() return t[-3], 1 end, "expected 1 to 2, or -2 to -1, got -3 in dim 1"},
      {"index", function() return t[{1, 2, 5}], 1 end, "expected 1 to 4, or -4 to -1, got 5 in dim 3"},
      {"argument", function() return t[1.5], 1 end, "expected a whole number, got 1.5 in dim 1"},
      {"argument", function() return t[0 / 0], 1 end, "expected a whole number, got nan in dim 1"},
      {"index", function() return t[{1, {0, 2}}], 1 end, "expected a range within 1 to 3, got {0, 2} in dim 2"},
      {"index", function() return t[{1, {2, 4}}], 1 end, "expected a range within 1 to 3, got {2, 4} in dim 2"},
      {"index", function() return t[{1, {3, 1}}], 1 end, "expected a range within 1 to 3, got {3, 1} in dim 2"},
      {"index", function() return t[{{1, 1.5}}], 1 end, "expected a range within 1 to 2, got {1, 1.5} in dim 1"},
      {"value", function() return t[{{1, 2, 0}}], 1 end, "expected a step >= 1, got 0 in dim 1; flip() reverses a dim"},
      {"value", function() return t[{{1, 2, -1}}], 1 end, "expected a step >= 1, got -1 in dim 1; flip() reverses a dim"},
      {"argument", function() return t[{{1, "2"}}], 1 end, "expected a range {first, last, step} of numbers, got string in it"},
      {"argument", function() return t[{{1, 2, 1, 1}}], 1 end},
      {"argument", function() return t[{{1, stop = 2}}], 1 end},
      {"index", function() return t[{1, 1, 1, 1}], 1 end, "expected at most one item a dim, got item 4 for a tensor of 3 dims"},
      {"argument", function() return t[{1, nil, 1}], 1 end},
      {"argument", function() return t[true], 1 end},
      {"argument", function() return t[{print}], 1 end},
      {"argument", function() return t[{"::"}], 1 end},
      {"index", function() return t[long {1, 9}], 1 end, "expected 1 to 2, or -2 to -1, got 9 at element 2 in dim 1"},
      {"index", function() return t[{1, long {0}}], 1 end},
      {"kind", function() return t[ag.tensor {1, 2}], 1 end},
      {"shape", function() return t[ag.tensor {true, false, true}], 1 end},
      {"shape", function() return t[ag.ones(2, 3, {dtype = "bool"})], 1 end},
      {"shape", function() return t[{1, ag.ones(2, 3, {dtype = "bool"})}], 1 end},
      {"index", function() return ag.tensor(1)[1], 1 end, "expected at most one item a dim, got item 1 for a tensor of 0 dims"},
    }
    for i, case in ipairs(list) do
      check("case " .. i, function()
        local code, err = code_of(case[2])
        assert.equal(case[1], code)
        assert.equal("index", err.op)
        if case[3] then assert.equal("index: " .. case[3], err.message) end
      end)
    end
    check.done()
  end)
end)

describe("sizes past 2^31", function()
  local huge = 2 ^ 33
  local wide = ag.tensor({3}, {dtype = "i8"}):expand(huge)

  it("are views without memory", function()
    assert.equal(huge, wide:numel())
    assert.equal(huge, #wide)
    assert.same({huge}, wide:shape())
    assert.equal(3, wide[huge]:item())
    assert.equal(3, wide:get(-huge))
    assert.equal(2 ^ 32 + 1, #wide[{{2 ^ 32, huge - 2 ^ 32 + 2 ^ 32}}])
    assert.equal(2 ^ 32, #wide[{{1, huge, 2}}])
    assert.same({2, 2 ^ 20}, wide:narrow(1, 5, 2 ^ 21):reshape(2, -1):shape())
    assert.equal("index", (code_of(function() return wide[huge + 1], 1 end)))
    assert.equal(huge * 4, wide:reshape(1, huge):expand(4, huge):numel())
  end)

  it("are refused where they would need memory", function()
    assert.equal("value", (code_of(function() return wide:tolist(), 1 end)))
    local big = ag.tensor(1, {dtype = "f64"}):expand(2 ^ 45)
    assert.equal("memory", (code_of(function() return big + 1 end)))
    assert.equal("memory", (code_of(function() return big:clone(), 1 end)))
    assert.equal("shape", (code_of(function() return ag.zeros(2 ^ 40, 2 ^ 40), 1 end)))
    assert.equal("state", (code_of(function() wide:fill_(1) end)))
  end)
end)
