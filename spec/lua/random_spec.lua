--- random: seeds, generators and their state.
local ag = require "argand"
local cases = require "support.cases"

local function code_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "no error was raised")
  assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
  return err.code
end

local makers = {
  rand = function(o) return ag.rand({5}, o) end, randn = function(o) return ag.randn({5}, o) end, randint = function(o) return ag.randint(0, 1000, {5}, o) end,
  randperm = function(o) return ag.randperm(20, o) end, bernoulli = function(o) return ag.full({50}, 0.5):bernoulli(o) end,
  dropout = function(o) return ag.ones(50):dropout(0.5, true, o) end,
}

describe("random numbers", function()
  it("repeat with the seed", function()
    local check = cases.begin()
    for name, make in pairs(makers) do
      check(name, function()
        ag.manual_seed(42)
        local first, second = make(), make()
        ag.manual_seed(42)
        assert.is_true(first:equal(make()) and second:equal(make()))
        assert.is_false(first:equal(second))
      end)
      check(name .. ", saved state", function()
        make()
        local state = ag.random_state()
        local first = make()
        ag.set_random_state(state)
        assert.is_true(first:equal(make()))
      end)
      check(name .. ", generator", function()
        local g, h = ag.generator(7), ag.generator(7)
        ag.manual_seed(1)
        local state = ag.random_state()
        local first = make {generator = g}
        make {generator = g}
        assert.is_true(first:equal(make {generator = h}))
        assert.same(state, ag.random_state())
        local saved = g:state()
        local third = make {generator = g}
        g:set_state(saved)
        assert.is_true(third:equal(make {generator = g}))
        g:seed(7)
        assert.is_true(first:equal(make {generator = g}))
      end)
    end
    check.done()
  end)

  it("do not depend on the number of threads", function()
    local count = ag.get_num_threads()
    local function sample()
      ag.manual_seed(9)
      return ag.randn(100003)
    end
    ag.set_num_threads(1)
    local one = sample()
    ag.set_num_threads(2)
    local two = sample()
    ag.set_num_threads(count)
    assert.is_true(one:equal(two))
  end)

  it("keep to their range", function()
    ag.manual_seed(5)
    local u, i, p = ag.rand(100000), ag.randint(3, 6, {1000}), ag.randperm(100)
    assert(u:min():item() >= 0 and u:max():item() < 1 and math.abs(u:mean():item() - 0.5) < 0.01)
    assert.equal(3, i:min():item())
    assert.equal(5, i:max():item())
    assert.is_true(p:sort():equal(ag.arange(1, 101, {dtype = "i64"})))
    local n = ag.randn(100000)
    assert(math.abs(n:mean():item()) < 0.02 and math.abs(n:std():item() - 1) < 0.02)
  end)

  it("refuse seeds that are none", function()
    local check = cases.begin()
    for i, seed in ipairs {-1, 1.5, 0 / 0, math.huge, 2 ^ 54} do
      check("seed " .. i, function()
        assert.equal("value", code_of(ag.manual_seed, seed))
        assert.equal("value", code_of(ag.generator, seed))
      end)
    end
    check("kind", function() assert.equal("argument", code_of(ag.manual_seed, "x")) end)
    check("nothing", function() assert.equal("argument", code_of(ag.manual_seed)) end)
    check("state", function() assert.equal("argument", code_of(ag.set_random_state, 5)) end)
    check("state's parts", function() assert.equal("argument", code_of(ag.set_random_state, {seed = 1})) end)
    check("self", function() assert.equal("argument", code_of(ag.generator(1).seed, 5, 5)) end)
    check("randint's range", function() assert.equal("value", code_of(ag.randint, 5, 5, {2})) end)
    check("bernoulli's p", function() assert.equal("value", code_of(function() local y = ag.full({2}, 1.5):bernoulli() return y end)) end)
    check("threads", function() assert.equal("value", code_of(ag.set_num_threads, 0)) end)
    check.done()
  end)
end)
