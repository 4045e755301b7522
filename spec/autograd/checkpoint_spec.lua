-- checkpoint_spec: balanced checkpointing and ag.checkpoint give the same gradients with less memory held.
local ag = require "argand"

local n = 256 -- a matrix of f32 takes 256 KiB

local function settle()
  collectgarbage()
  collectgarbage()
  return ag.memory().live
end

local function parameters()
  ag.manual_seed(7)
  local list = {}
  for i = 1, 3 do
    list[i] = ag.randn(n, n) * 0.06
    list[i].requires_grad = true
  end
  return list
end

-- Matrix products with chains of elementwise ops between them.
local function network(w, x)
  local h = x
  for i = 1, #w do
    h = h:matmul(w[i])
    h = ((h * 1.1 + 0.1):sigmoid() * h):tanh()
    h = h:dropout(0.3)
    h = (h:exp() - 1) * 0.5 + h:transpose(1, 2):transpose(1, 2)
  end
  return (h * h):mean()
end

-- The loss, the gradients, and what forward left in memory. `run` gets (fn, w, x).
local function measure(run)
  local w = parameters()
  local x = ag.randn(n, n)
  local before = settle()
  local loss = run(network, w, x)
  local held = settle() - before
  loss:backward()
  local grads = {}
  for i = 1, #w do grads[i] = w[i].grad end
  return {loss = loss:item(), grads = grads, held = held}
end

local function same(a, b)
  assert.equal(a.loss, b.loss)
  for i = 1, #a.grads do assert.is_true(a.grads[i]:allclose(b.grads[i], {rtol = 1e-5, atol = 1e-8}), "gradient " .. i) end
end

local function leaf(values) return ag.tensor(values, {requires_grad = true, dtype = "f64"}) end

describe("balanced checkpointing", function()
  it("gives the same gradients, dropout included, and holds less", function()
    local plain = measure(function(fn, ...) return fn(...) end)
    local balanced = measure(function(fn, ...) return ag.autodiff({checkpointing = "balanced"}, fn, ...) end)
    same(plain, balanced)
    assert.is_true(balanced.held < 0.6 * plain.held, ("held %d of %d"):format(balanced.held, plain.held))
    local none = measure(function(fn, ...) return ag.autodiff({checkpointing = "none"}, fn, ...) end)
    assert.is_true(none.held > balanced.held)
  end)

  it("goes through enable_grad", function()
    local function inside(fn, ...)
      return ag.autodiff({checkpointing = "balanced"}, function(...) return ag.no_grad(ag.enable_grad, fn, ...) end, ...)
    end
    local plain, balanced = measure(function(fn, ...) return fn(...) end), measure(inside)
    same(plain, balanced)
    assert.is_true(balanced.held < 0.6 * plain.held)
  end)

  it("leaves what two losses share usable for both", function()
    local x = leaf {1, 2, 3}
    local first, second = ag.autodiff({checkpointing = "balanced"}, function()
      local h = x + 1
      return (h * h):sum(), (h * h * h):sum()
    end)
    first:backward()
    second:backward()
    assert.same({4 + 12, 6 + 27, 8 + 48}, x.grad:tolist())
  end)

  it("sees what was changed without the tape before it was read", function()
    local changes = {
      function(h) ag.no_grad(function() h:mul_(2) end) end, function(h) h:detach():mul_(3) end,
      function(h) ag.no_grad(function() h[1] = 10 end) end, function(h) h:detach():set(2, 5) end,
      function(h) ag.no_grad(function() ag.exp(ag.ones(3), {out = h}) end) end,
      function(h) h:add_(1) h:detach():mul_(2) end, -- by the tape, then without it
    }
    for _, change in ipairs(changes) do
      local grads = {}
      for i, mode in ipairs {"none", "balanced"} do
        local x = ag.tensor({1, 2, 3}, {requires_grad = true})
        ag.autodiff({checkpointing = mode}, function()
          local h = x * 1
          change(h)
          local loss = (h * h):sum()
          loss:backward()
        end)
        grads[i] = x.grad
      end
      assert.is_true(grads[1]:equal(grads[2]), tostring(grads[1]) .. "\n" .. tostring(grads[2]))
    end
  end)

  it("is differentiated twice, and checks versions", function()
    local x = leaf {0.5, 0.7}
    local y = ag.autodiff({checkpointing = "balanced"}, function() return (x:sin():exp() * x:cos()):sum() end)
    local g = ag.grad(y, x, {create_graph = true})
    local gg = ag.grad(g:sum(), x)
    local plain = ag.grad(ag.grad((x:sin():exp() * x:cos()):sum(), x, {create_graph = true}):sum(), x)
    assert.is_true(gg:allclose(plain, {rtol = 1e-12}))
    local buffer = ag.ones(2, {dtype = "f64"})
    local z = ag.autodiff({checkpointing = "balanced"}, function() return (x * buffer):exp():sum() end)
    buffer:add_(1)
    local ok, err = pcall(z.backward, z)
    assert.is_false(ok)
    assert.equal("stale", err.code)
  end)
end)

describe("ag.checkpoint", function()
  it("gives the same gradients, dropout included, and holds next to nothing", function()
    local plain = measure(function(fn, ...) return fn(...) end)
    local once = measure(function(fn, w, x) return ag.checkpoint(fn, w, x) end)
    same(plain, once)
    assert.is_true(once.held < 0.05 * plain.held, ("held %d of %d"):format(once.held, plain.held))
    local after = ag.rand(3):tolist()
    local again = measure(function(fn, ...) return fn(...) end)
    same(plain, again)
    assert.same(after, ag.rand(3):tolist()) -- the replay leaves the generator as it was
  end)

  it("reaches parameters and results from outside", function()
    local w, x = leaf {1, 2}, leaf {3, 4}
    local h = w * 2
    local y = ag.checkpoint(function(a) return (a * h * w):sum() end, x);
    (y + h:sum()):backward()
    assert.same({3 * 4 * 1 + 2, 4 * 4 * 2 + 2}, w.grad:tolist())
    assert.same({2, 8}, x.grad:tolist())
    local only = leaf {5}
    ag.checkpoint(function(t) return t * only end, ag.ones(1, {dtype = "f64"})):sum():backward()
    assert.same({1}, only.grad:tolist())
  end)

  it("calls hooks once, with the full gradient", function()
    local w, seen = leaf {2}, {}
    w:register_hook(function(g) seen[#seen + 1] = g:item() end)
    local y = ag.checkpoint(function(a) return a * w end, w * 3) + w
    y:sum():backward()
    assert.same({2 * 2 * 3 + 1}, seen)
    assert.same(seen, w.grad:tolist())
  end)

  it("nests, and works inside ag.grad and twice", function()
    local x, w = leaf {0.5, 0.7}, leaf {1.5, 2}
    local h = x * w
    local function plain() return ((x * 2 * h):sin() * w * h):exp():sum() end
    local function nested()
      return ag.checkpoint(function(a)
        local inner = ag.checkpoint(function(b) return (a * b):sin() end, h)
        return (inner * w * h):exp():sum()
      end, x * 2)
    end
    local function both(fn)
      local g = ag.grad(fn(), {x, w}, {create_graph = true})
      local gg = ag.grad((g[1] * g[2]):sum(), {x, w}, {retain_graph = true})
      return {g[1], g[2], gg[1], gg[2]}
    end
    local expected, got = both(plain), both(nested)
    for i = 1, 4 do assert.is_true(expected[i]:allclose(got[i], {rtol = 1e-12}), "gradient " .. i) end
    assert.is_nil(x.grad)
  end)

  it("takes other values and gives several results, of which some are used", function()
    local x = leaf {1, 2}
    local a, word, b, positions = ag.checkpoint(function(t, k, s) return t * k, s, t * t, t:argmax() end, x, 3, "word")
    assert.equal("word", word)
    assert.equal(2, positions:item())
    assert.is_true(a.requires_grad)
    b:sum():backward()
    assert.same({2, 4}, x.grad:tolist())
    assert.is_false(ag.no_grad(ag.checkpoint, function(t) return t * 2 end, x).requires_grad)
  end)

  it("passes errors on, in forward and in the replay", function()
    local x, calls = leaf {1}, 0
    local function fn(t)
      calls = calls + 1
      if calls == 2 then error({second = true}) end
      return t * 2
    end
    local y = ag.checkpoint(fn, x)
    local ok, err = pcall(function() y:sum():backward() end)
    assert.is_false(ok)
    assert.is_true(err.second)
    assert.is_nil(x.grad)
    ok, err = pcall(ag.checkpoint, function() error "first" end, x)
    assert.is_false(ok)
    assert.truthy(tostring(err):find "first")
    assert.is_true(ag.is_grad_enabled())
  end)

  it("notices a changed argument, and outlives scopes", function()
    local x = leaf {1}
    local h = x * 1
    local y = ag.checkpoint(function(t) return t:exp() end, h):sum()
    h:add_(1)
    local ok, err = pcall(y.backward, y)
    assert.is_false(ok)
    assert.equal("stale", err.code)
    local loss = ag.scope(function() return ag.checkpoint(function(t) return t * t end, x * 3):sum() end)
    loss:backward()
    assert.same({18}, x.grad:tolist())
  end)
end)
