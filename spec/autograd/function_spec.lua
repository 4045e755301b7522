-- function_spec: ag.Function, differentiable functions of the user.
local ag = require "argand"

local function leaf(values) return ag.tensor(values, {requires_grad = true, dtype = "f64"}) end
local function fails(code, pattern, fn)
  local ok, err = pcall(fn)
  assert(not ok, "expected an error " .. code)
  assert(type(err) == "table" and err.code == code, ("expected code %s, got %s"):format(code, tostring(err)))
  assert(tostring(err):find(pattern), ("expected '%s' in: %s"):format(pattern, tostring(err)))
end

local Exp = ag.Function {
  name = "Exp",
  forward = function(ctx, x)
    local y = x:exp()
    ctx:save(y)
    return y
  end,
  backward = function(ctx, g) return g * ctx.saved[1] end,
}

local Scaled = ag.Function {
  name = "Scaled",
  forward = function(ctx, a, factor, b, label)
    ctx.factor = factor
    ctx:save(a, b)
    return a * b * factor, a + b, label
  end,
  backward = function(ctx, g_product, g_sum)
    local a, b = ctx.saved[1], ctx.saved[2]
    local da, db = nil, nil
    if g_product then da, db = g_product * b * ctx.factor, g_product * a * ctx.factor end
    if g_sum then da, db = da and da + g_sum or g_sum, db and db + g_sum or g_sum end
    return da, db
  end,
}

describe("ag.Function", function()
  it("takes several tensors and other values, and gives several results", function()
    local a, b = leaf {1, 2}, leaf {3, 4}
    local product, sum, label = Scaled(a, 10, b, "name")
    assert.equal("name", label)
    assert.same({30, 80}, product:tolist());
    (product + sum):sum():backward()
    assert.same({31, 41}, a.grad:tolist())
    assert.same({11, 21}, b.grad:tolist())
    product, sum = Scaled(a, 10, b)
    assert.is_true(product.requires_grad)
    assert.same({1, 1}, ag.grad(sum:sum(), a):tolist())
  end)

  it("is recorded only when something is tracked", function()
    assert.is_false(Exp(ag.ones(2)).requires_grad)
    assert.is_false(ag.no_grad(Exp, leaf {1}).requires_grad)
    assert.is_true(Exp(leaf {1}).requires_grad)
  end)

  it("is differentiated twice and three times, through saved results too", function()
    local x = leaf {0.5, 1}
    local y = Exp(x * 2)
    local g1 = ag.grad(y:sum(), x, {create_graph = true})
    local g2 = ag.grad(g1:sum(), x, {create_graph = true})
    local g3 = ag.grad(g2:sum(), x)
    assert.is_true(g3:allclose((x * 2):exp() * 8, {rtol = 1e-12}))
    local a, b = leaf {2}, leaf {3}
    local g = ag.grad(Scaled(a, 10, b), a, {create_graph = true})
    assert.same({10}, ag.grad(g, b):tolist())
  end)

  it("gives nil for inputs without a gradient", function()
    local First = ag.Function {forward = function(_, a, b) return a + b end, backward = function(_, g) return g end}
    local a, b = leaf {1}, leaf {2}
    First(a, b):sum():backward()
    assert.same({1}, a.grad:tolist())
    assert.is_nil(b.grad)
    local Nothing = ag.Function {forward = function(_, x) return x * 1 end, backward = function() end}
    local c = leaf {1}
    Nothing(c):sum():backward()
    assert.is_nil(c.grad)
  end)

  it("may return an argument, or a tensor twice", function()
    local Same = ag.Function {forward = function(_, x) return x, x end,
      backward = function(_, g, h) return (g or 0) + (h and h * 10 or 0) end}
    local x = leaf {1, 2}
    local y, z = Same(x)
    assert.is_true(x.is_leaf and not y.is_leaf);
    (y + z):sum():backward()
    assert.truthy(x.grad)
  end)

  it("notices that a saved tensor was changed", function()
    local x = leaf {1}
    local h = x * 1
    local y = Scaled(h, 2, h)
    h:add_(1)
    fails("stale", "Scaled.*saved tensor 1.*version 1, saved at 0", function() y:backward() end)
  end)

  it("is used up by backward", function()
    local x = leaf {1}
    local y = Exp(x):sum()
    y:backward {retain_graph = true}
    y:backward()
    fails("autodiff", "second backward through Exp", function() y:backward() end)
  end)

  it("passes errors on unchanged and checks what backward returns", function()
    local x, mine = leaf {1, 2}, {}
    local function with(backward, ...)
      local F = ag.Function {name = "Odd", forward = function(_, t) return t * 1 end, backward = backward}
      local y = F(x, ...):sum()
      local ok, err = pcall(function() y:backward() end)
      assert.is_false(ok)
      return err
    end
    assert.equal(mine, with(function() error(mine) end))
    assert.equal("shape", with(function() return ag.ones(3, {dtype = "f64"}) end).code)
    assert.equal("shape", with(function() return ag.ones(2) end).code)
    assert.equal("argument", with(function() return 3 end).code)
    assert.equal("argument", with(function(_, g) return g, g end).code)
    assert.equal("argument", with(function(_, g)
      local freed = g * 1
      freed:free()
      return freed
    end).code)
    fails("argument", "forward", function() ag.Function {forward = print} end)
    assert.is_nil(x.grad)
  end)

  it("outlives scopes, and leaves nothing behind without backward", function()
    local x = leaf {1}
    local loss = ag.scope(function() return Exp(x * 2):sum() end)
    loss:backward()
    assert.near(2 * math.exp(2), x.grad:item(), 1e-9)
    collectgarbage()
    collectgarbage()
    local before = ag.memory().nodes
    for _ = 1, 100 do
      local y = x
      for _ = 1, 10 do y = Exp(y * 0.1) end
    end
    collectgarbage() -- one round frees whole chains
    assert.equal(before, ag.memory().nodes)
  end)
end)
