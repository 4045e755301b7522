-- inplace_spec: changes in place: versions, what the tape can follow, what it refuses.
local ag = require "argand"

local function leaf(values) return ag.tensor(values, {requires_grad = true, dtype = "f64"}) end
local function plain(values) return ag.tensor(values, {dtype = "f64"}) end
local function fails(code, pattern, fn)
  local ok, err = pcall(fn)
  assert(not ok, "expected an error " .. code)
  assert(type(err) == "table" and err.code == code, ("expected code %s, got %s"):format(code, tostring(err)))
  assert(tostring(err):find(pattern), ("expected '%s' in: %s"):format(pattern, tostring(err)))
end

describe("a change in place", function()
  it("counts versions, shared by all handles on the storage", function()
    local x = ag.zeros(3)
    local v, d = x:narrow(1, 1, 2), x:detach()
    local before = x.version
    x:add_(1)
    v:mul_(3)
    x[3] = 5
    assert.equal(before + 3, x.version)
    assert.equal(x.version, d.version)
    assert.same({3, 3, 5}, d:tolist())
  end)

  it("makes a saved tensor stale: the error names op and versions", function()
    local x = leaf {1, 2}
    local h = x * 1
    local y = h:sin():sum()
    h:add_(1)
    fails("stale", "sin.*version 1, saved at 0", function() y:backward() end)
    local e = (x * 1):exp() -- exp reads its result
    local z = e:sum()
    e:add_(1)
    fails("stale", "exp.*result", function() z:backward() end)
    local buffer = plain {1, 2}
    local w = (x * buffer):sum()
    buffer:zero_()
    fails("stale", "mul", function() w:backward() end)
    assert.is_nil(x.grad)
  end)

  it("is refused on a leaf, but under no_grad", function()
    local x = leaf {1, 2}
    fails("autodiff", "leaf.*no_grad", function() x:mul_(2) end)
    fails("autodiff", "leaf.*no_grad", function() x[1] = 3 end);
    (x * x):sum():backward()
    for _ = 1, 3 do
      ag.no_grad(function() x:sub_(x.grad * 0.5) end)
      x.grad = nil;
      (x * x):sum():backward()
    end
    assert.same({0, 0}, x:tolist())
    assert.is_true(x.requires_grad and x.is_leaf)
  end)

  it("is differentiated on results", function()
    local x, w = leaf {1, 2}, leaf {3, 4}
    local h = x * 2
    h:add_(w)
    h:exp_()
    h:mul_(plain {1, 0})
    h:sum():backward()
    assert.near(2 * math.exp(5), x.grad:get(1), 1e-9)
    assert.near(math.exp(5), w.grad:get(1), 1e-9)
    assert.equal(0, x.grad:get(2))
    local buffer = plain {1, 1}
    buffer:add_(w * 2) -- an untracked tensor becomes tracked
    assert.is_true(buffer.requires_grad)
    w.grad = nil
    buffer:sum():backward()
    assert.same({2, 2}, w.grad:tolist())
  end)

  it("is refused where views would have to follow", function()
    local x = leaf {{1, 2}, {3, 4}}
    local h = x * 1
    local row = h:select(1, 1)
    fails("autodiff", "view", function() row:mul_(2) end)
    fails("autodiff", "views", function() h:mul_(2) end)
    row = nil -- luacheck: ignore
    collectgarbage()
    h:mul_(2)
    h:sum():backward()
    assert.same({{2, 2}, {2, 2}}, x.grad:tolist())
    local buffer = ag.zeros(2, 2, {dtype = "f64"})
    fails("autodiff", "view", function() buffer:select(1, 1):add_(x:sum()) end)
  end)
end)

describe("assignment to a part", function()
  it("passes gradients to the value and to the rest", function()
    local x, v = leaf {1, 2, 3}, leaf {10, 20}
    local h = x * 2
    h[{{1, 2}}] = v
    h[3] = v[1] * 3
    h[2] = 7;
    (h * plain {1, 10, 100}):sum():backward()
    assert.same({0, 0, 0}, x.grad:tolist())
    assert.same({301, 0}, v.grad:tolist())
    local y = leaf {1, 2, 3}
    local k = y * 2
    k[2] = 0
    k:sum():backward()
    assert.same({2, 0, 2}, y.grad:tolist())
  end)

  it("fills an untracked buffer part by part", function()
    local w = leaf {1, 2, 3}
    local buffer = ag.zeros(3, 2, {dtype = "f64"})
    for i = 1, 3 do buffer[i] = w[i] * i end
    assert.same({{1, 1}, {4, 4}, {9, 9}}, buffer:tolist())
    buffer:sum():backward()
    assert.same({2, 4, 6}, w.grad:tolist())
  end)

  it("takes masks and positions", function()
    local x, v = leaf {1, 2, 3, 4}, leaf {5, 6}
    local h = x * 1
    h[ag.tensor {true, false, false, true}] = v
    h[ag.tensor({2}, {dtype = "i64"})] = v[2] * 10
    assert.same({5, 60, 3, 6}, h:tolist())
    h:sum():backward()
    assert.same({0, 0, 1, 0}, x.grad:tolist())
    assert.same({1, 11}, v.grad:tolist())
  end)
end)
