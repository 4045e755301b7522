-- backward_spec: backward and ag.grad: seeds, retention, accumulation, higher orders, depth, errors.
local ag = require "argand"
local cases = require "support.cases"

local is_sanitized = not ag.info().build:find("sanitizers: none", 1, true)

local function leaf(values, dtype) return ag.tensor(values, {requires_grad = true, dtype = dtype or "f64"}) end
local function values(t) return t:tolist() end
local function fails(code, pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error " .. code)
  assert(type(err) == "table" and err.code == code, ("expected code %s, got %s"):format(code, tostring(err)))
  assert(tostring(err):find(pattern), ("expected '%s' in: %s"):format(pattern, tostring(err)))
  return err
end

describe("backward", function()
  it("adds to the grads of leaves", function()
    local x, y = leaf {1, 2, 3}, leaf {4, 5, 6};
    (x * y):sum():backward()
    assert.same({4, 5, 6}, values(x.grad));
    (x * y):sum():backward()
    assert.same({8, 10, 12}, values(x.grad))
    assert.same({2, 4, 6}, values(y.grad))
    x.grad = nil
    assert.is_nil(x.grad);
    (x * 2):sum():backward()
    assert.same({2, 2, 2}, values(x.grad))
  end)

  it("gives each leaf a gradient of its own", function()
    local a, b = leaf {1, 2}, leaf {3, 4}
    local seed = ag.tensor({1, 1}, {dtype = "f64"});
    (a + b):backward {gradient = seed}
    local kept = b.grad
    assert.is_false(a.grad:shares_storage(b.grad))
    assert.is_false(a.grad:shares_storage(seed));
    (a * 3):sum():backward()
    assert.same({4, 4}, values(a.grad))
    assert.same({1, 1}, values(kept))
    assert.same({1, 1}, values(seed))
    ag.no_grad(function() a.grad:mul_(100) end)
    assert.same({1, 1}, values(b.grad))
  end)

  it("walks diamonds and shared leaves once", function()
    local x, runs = leaf {2}, 0
    local h = x * 3
    h:register_hook(function() runs = runs + 1 end)
    local y = h * h + h + h:exp() * 0
    y:sum():backward()
    assert.equal(1, runs)
    assert.same({2 * 6 * 3 + 3}, values(x.grad))
    local w, sum = leaf {1}, nil
    for i = 1, 100 do sum = sum and sum + w * i or w * i end
    sum:sum():backward()
    assert.same({5050}, values(w.grad))
  end)

  it("sums over what was broadcast, in every dtype", function()
    local check = cases.begin()
    for _, dtype in ipairs {"f64", "f32", "f16", "bf16"} do
      check(dtype, function()
        local a = ag.ones(3, 1, {dtype = dtype, requires_grad = true})
        local b = ag.ones(4, {dtype = dtype, requires_grad = true})
        local c = ag.ones({}, {dtype = dtype, requires_grad = true})
        local y = a * b + c
        y:sum():backward()
        assert.same({{4}, {4}, {4}}, values(a.grad))
        assert.same({3, 3, 3, 3}, values(b.grad))
        assert.equal(12, c.grad:item())
        assert.equal(dtype, a.grad.dtype)
      end)
    end
    check("a cast between", function()
      local x = leaf({1, 2}, "f16")
      x:to("f64"):sum():backward()
      assert.equal("f16", x.grad.dtype)
    end)
    check("empty", function()
      local x = ag.zeros(0, 3, {requires_grad = true})
      x:exp():sum():backward()
      assert.same({0, 3}, x.grad:shape())
    end)
    check("0-d", function()
      local x = leaf(3);
      (x * x):backward()
      assert.equal(6, x.grad:item())
    end)
    check.done()
  end)

  it("chooses gradients where the function has corners", function()
    local inf = math.huge
    local x, y = leaf {0, 4}, leaf {1, 1}
    ag.where(ag.tensor {true, false}, x, y):backward {gradient = ag.tensor({inf, inf}, {dtype = "f64"})}
    assert.same({inf, 0}, values(x.grad)) -- selected, not multiplied by 0
    assert.same({0, inf}, values(y.grad))
    local tied = leaf {1, 5, 5, 5, 2}
    tied:amax():backward()
    for i, share in ipairs {0, 1 / 3, 1 / 3, 1 / 3, 0} do assert.near(share, tied.grad:get(i), 1e-12) end
  end)

  it("says what is wrong with a root or a seed", function()
    local x = leaf {1, 2}
    fails("shape", "gradient=g", function() (x * 2):backward() end)
    fails("shape", "f64%[2%].*f64%[3%]", function() (x * 2):backward {gradient = ag.ones(3, {dtype = "f64"})} end)
    fails("shape", "f64%[2%].*f32%[2%]", function() (x * 2):backward {gradient = ag.ones(2)} end)
    fails("autodiff", "requires_grad", function() ag.ones(1):backward() end)
    fails("option", "retain_graf", function() (x * 2):sum():backward {retain_graf = true} end)
    fails("argument", "gradient", function() (x * 2):backward {gradient = 3} end)
    assert.is_nil(x.grad)
  end)

  it("refuses a second run through a graph that was used up, and names the op", function()
    local x = leaf {1, 2}
    local y = x:exp():sum()
    y:backward()
    fails("autodiff", "exp.*retain_graph", function() y:backward() end)
    local z = x:sin():sum()
    z:backward {retain_graph = true}
    z:backward()
    fails("autodiff", "sin", function() z:backward() end)
  end)

  it("marks leaves of float dtype only", function()
    local x = leaf {1}
    local y = x * 2
    fails("kind", "float", function() ag.tensor({1}, {dtype = "i64"}).requires_grad = true end)
    fails("autodiff", "leaf", function() y.requires_grad = false end)
    fails("autodiff", "leaf", function() y.grad = ag.ones(1, {dtype = "f64"}) end)
    fails("dtype", "f64%[1%].*f32%[1%]", function() x.grad = ag.ones(1) end)
    local d = y:detach()
    assert.is_false(d.requires_grad)
    assert.is_true(d:shares_storage(y))
    assert.is_true(d.is_leaf and x.is_leaf and not y.is_leaf)
    x.requires_grad = false
    assert.is_false((x * 2).requires_grad)
    assert.is_true(y.requires_grad)
  end)
end)

describe("ag.grad", function()
  it("returns gradients and leaves the leaves alone", function()
    local x, y = leaf {1, 2}, leaf {3, 4}
    local h = x * y
    local g = ag.grad((h * h):sum(), {x, h, y, x})
    assert.same({18, 64}, values(g[1]))
    assert.same({6, 16}, values(g[2]))
    assert.same({6, 32}, values(g[3]))
    assert.same({18, 64}, values(g[4]))
    assert.is_nil(x.grad)
    ag.no_grad(function() g[1]:zero_() end)
    assert.same({18, 64}, values(g[4]))
  end)

  it("hands out tensors that may be changed in place", function()
    local x = leaf {1, 2, 3}
    local g = ag.grad(x:sum(), x)
    g:mul_(2)
    g[1] = 7
    assert.same({7, 2, 2}, values(g))
    local seed = ag.tensor({1, 1, 1}, {dtype = "f64"})
    ag.grad(x + 1, x, {gradient = seed}):mul_(5)
    assert.same({1, 1, 1}, values(seed))
  end)

  it("takes the root as input, a part of the graph only, and unused inputs", function()
    local x, y = leaf {2}, leaf {3}
    local r = x * x
    assert.same({1}, values(ag.grad(r:sum(), r)))
    assert.same({1}, values(ag.grad(r, r)))
    local err = fails("autodiff", "position 2.*", function() ag.grad((x * 2):sum(), {x, y}) end)
    assert.truthy(err.hint:find "allow_unused")
    local g = ag.grad((x * 2):sum(), {x, y}, {allow_unused = true})
    assert.same({2}, values(g[1]))
    assert.is_nil(g[2])
    fails("autodiff", "position 1", function() ag.grad(x:sum(), {ag.ones(1)}) end)
    fails("argument", "inputs", function() ag.grad(x:sum(), 3) end)
    -- only what leads to the input is differentiated: y's part stays usable
    local shared = y:exp()
    ag.grad((x * 2 + shared):sum(), x);
    shared:sum():backward()
    assert.near(math.exp(3), y.grad:item(), 1e-9)
  end)

  it("differentiates twice and three times", function()
    local x = leaf {0.3, 0.7}
    local y = (x:sin() * x):exp()
    local g1 = ag.grad(y:sum(), x, {create_graph = true})
    local g2 = ag.grad(g1:sum(), x, {create_graph = true})
    local g3 = ag.grad(g2:sum(), x)
    local function first(at) return ag.grad((at:sin() * at):exp():sum(), at, {create_graph = true}) end
    local function second(at) return ag.grad(first(at):sum(), at, {create_graph = true}) end
    local h = 1e-5
    local up, down = (x + h):detach(), (x - h):detach()
    up.requires_grad, down.requires_grad = true, true
    assert.is_true(g2:allclose((first(up) - first(down)) / (2 * h), {rtol = 1e-6}))
    assert.is_true(g3:allclose((second(up) - second(down)) / (2 * h), {rtol = 1e-6}))
  end)

  it("gives Hessian-vector products", function()
    ag.manual_seed(11)
    local w, v = ag.randn(4, 4, {dtype = "f64", requires_grad = true}), ag.randn(4, 4, {dtype = "f64"})
    local x = ag.randn(3, 4, {dtype = "f64"})
    local function gradient(at, options)
      return ag.grad(x:matmul(at):tanh():matmul(at):softmax(2):log():mean(), at, options)
    end
    local product = ag.grad((gradient(w, {create_graph = true}) * v):sum(), w)
    local h = 1e-5
    local up, down = (w + v * h):detach(), (w - v * h):detach()
    up.requires_grad, down.requires_grad = true, true
    assert.is_true(product:allclose((gradient(up) - gradient(down)) / (2 * h), {rtol = 1e-5, atol = 1e-8}))
  end)

  it("ties the grads of leaves to the tape with create_graph", function()
    local x = leaf {2};
    (x * x * x):sum():backward {create_graph = true}
    local g = x.grad
    x.grad = nil -- or leaf and graph hold each other
    assert.same({12}, values(g))
    g:sum():backward()
    assert.same({12}, values(x.grad))
    x.grad = nil
  end)
end)

describe("the tape", function()
  local function nodes()
    collectgarbage()
    collectgarbage()
    return ag.memory().nodes
  end

  it("is built, walked and freed a million nodes deep", function()
    local before = nodes()
    local x = leaf {1}
    local y = x
    for _ = 1, 1000000 do y = y + 1 end
    y:sum():backward()
    assert.same({1}, values(x.grad))
    local z = x
    for _ = 1, 200000 do z = z + x end
    assert.same({200001}, values(ag.grad(z:sum(), x)))
    x, y, z = nil, nil, nil -- luacheck: ignore
    assert.equal(before, nodes())
  end)

  it("keeps nothing of forwards that no backward follows", function()
    local w = ag.ones(8, {requires_grad = true})
    local before, most = nodes(), 0
    local live = ag.memory().live
    for i = 1, is_sanitized and 100000 or 1000000 do
      local _ = (w * 2):exp():sum()
      if i % 1000 == 0 then most = math.max(most, ag.memory().nodes) end
    end
    assert.equal(before, nodes())
    assert.equal(live, ag.memory().live)
    assert.is_true(most - before < 200000, "nodes pile up: " .. most)
  end)

  it("frees saved tensors as backward goes", function()
    local size, depth = 1048576 / 4, 20 -- a MiB each
    local x = ag.ones(size, {requires_grad = true})
    local y = x
    for _ = 1, depth do y = (y * 0.9):sin() end -- each step saves what sin saw
    local y_sum = y:sum()
    y = nil -- luacheck: ignore
    collectgarbage()
    ag.memory_reset_peak()
    local live = ag.memory().live
    y_sum:backward()
    local after = ag.memory()
    assert.is_true(after.peak - live < 6 * 1048576, "backward took " .. after.peak - live)
    assert.is_true(live - after.live > (depth - 3) * 1048576, "backward left " .. after.live .. " of " .. live)
  end)

  it("is whole again after an interrupt in the middle", function()
    local ffi = require "ffi"
    ffi.cdef "int raise(int signal);"
    local SIGINT = 2
    local interrupts = true
    local Pass = ag.Function {forward = function(_, x) return x * 1 end, backward = function(_, g)
      if interrupts then ffi.C.raise(SIGINT) end
      return g
    end}
    local x = leaf {1, 2}
    local y = (Pass(x:sin()) * 2):sum()
    for _ = 1, 3 do
      local ok, err = pcall(y.backward, y, {retain_graph = true})
      assert.is_false(ok)
      assert.equal("interrupted", err.code)
    end
    assert.is_nil(x.grad)
    assert.is_true(ag.is_grad_enabled())
    interrupts = false
    y:backward()
    assert.near(2 * math.cos(1), x.grad:get(1), 1e-12)
  end)

  it("is whole again after an error in the middle", function()
    local before = nodes()
    local live = ag.memory().live
    local function break_it()
      local Broken = ag.Function {name = "Broken", forward = function(_, x) return x * 1 end,
        backward = function() error "no gradient today" end}
      local x = ag.ones(100, {requires_grad = true})
      local h = x:sin()
      local y = (Broken(h) + h:cos()):exp():sum()
      for _ = 1, 3 do
        local ok, err = pcall(function() y:backward {retain_graph = true} end)
        assert.is_false(ok)
        assert.truthy(tostring(err):find "no gradient today")
      end
      assert.is_nil(x.grad)
      h:cos():sum():backward() -- the rest of the graph is still of use
      assert.truthy(x.grad)
    end
    break_it()
    assert.equal(before, nodes())
    assert.equal(live, ag.memory().live)
  end)
end)
