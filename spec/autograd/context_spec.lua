-- context_spec: no_grad, enable_grad and autodiff nest, and end with the function whatever happens inside.
local ag = require "argand"

local x = ag.tensor({1, 2}, {requires_grad = true})
local function is_recorded() return (x * 2).requires_grad end

describe("autodiff contexts", function()
  it("nest and hand values through", function()
    assert.is_true(is_recorded())
    local a, b = ag.no_grad(function(p, q)
      assert.is_false(is_recorded())
      assert.is_true(ag.enable_grad(is_recorded))
      assert.is_true(ag.autodiff({checkpointing = "balanced"}, is_recorded))
      assert.is_false(ag.is_grad_enabled())
      return q, p
    end, 1, 2)
    assert.same({2, 1}, {a, b})
    assert.is_true(ag.is_grad_enabled())
  end)

  it("end with an error", function()
    local mine = {}
    local ok, err = pcall(ag.no_grad, function()
      pcall(ag.enable_grad, function() error "inner" end)
      assert.is_false(is_recorded())
      error(mine)
    end)
    assert.is_false(ok)
    assert.equal(mine, err)
    assert.is_true(is_recorded())
  end)

  it("cannot be left by a yield", function()
    local co = coroutine.create(function() ag.no_grad(coroutine.yield) end)
    local ok = coroutine.resume(co)
    assert.is_false(ok)
    assert.is_true(is_recorded())
    local inside = coroutine.wrap(function()
      local seen = ag.no_grad(is_recorded)
      coroutine.yield(seen)
    end)
    assert.is_false(inside())
    assert.is_true(is_recorded())
  end)

  it("have a bound on nesting, which is an error and no crash", function()
    local function deeper() return ag.no_grad(deeper) end
    assert.has_error(deeper)
    assert.is_true(is_recorded())
  end)

  it("say what they want", function()
    for _, case in ipairs {
      {"argument", function() ag.no_grad(3) end}, {"argument", function() ag.autodiff(3, print) end},
      {"option", function() ag.autodiff({checkpoint = "balanced"}, print) end},
      {"value", function() ag.autodiff({checkpointing = "most"}, print) end},
      {"value", function() ag.autodiff({checkpointing = 3}, print) end}} do
      local ok, err = pcall(case[2])
      assert.is_false(ok)
      assert.equal(case[1], err.code)
    end
  end)
end)
