-- hooks_spec: hooks on leaves and results see and replace finished gradients.
local ag = require "argand"

local function leaf(values) return ag.tensor(values, {requires_grad = true, dtype = "f64"}) end

describe("a hook", function()
  it("sees the full gradient, once", function()
    local x, seen = leaf {1, 2}, {}
    x:register_hook(function(g) seen[#seen + 1] = g:tolist() end);
    (x * 2 + x * 3 + x:sum()):sum():backward()
    assert.same({{7, 7}}, seen)
    assert.same({7, 7}, x.grad:tolist())
  end)

  it("replaces it, on leaves and results, in order of registration", function()
    local x = leaf {1, 2}
    local h = x * 2
    h:register_hook(function(g) return g * 10 end)
    h:register_hook(function(g) return g + 1 end)
    x:register_hook(function(g) return -g end)
    h:sum():backward()
    assert.same({-22, -22}, x.grad:tolist())
    assert.same({11 * 2 * -1, -22}, ag.grad((x * 2 * 11):sum(), x):tolist())
  end)

  it("can be removed, from inside too", function()
    local x, calls = leaf {1}, {}
    local first, second
    first = x:register_hook(function()
      calls[#calls + 1] = "first"
      first:remove()
      second:remove()
    end)
    second = x:register_hook(function() calls[#calls + 1] = "second" end)
    x:register_hook(function() calls[#calls + 1] = "third" end);
    (x * 2):sum():backward();
    (x * 2):sum():backward()
    assert.same({"first", "third", "third"}, calls)
    first:remove()
  end)

  it("passes its error on unchanged and leaves no gradient", function()
    local x, mine = leaf {1}, {}
    local handle = x:register_hook(function() error(mine) end)
    local ok, err = pcall(function() (x * 2):sum():backward() end)
    assert.is_false(ok)
    assert.equal(mine, err)
    assert.is_nil(x.grad)
    handle:remove();
    (x * 2):sum():backward()
    assert.same({2}, x.grad:tolist())
  end)

  it("has to return a fitting tensor or nothing", function()
    local x = leaf {1, 2}
    local function with(fn)
      local handle = x:register_hook(fn)
      local ok, err = pcall(function() (x * 2):sum():backward() end)
      handle:remove()
      assert.is_false(ok)
      return err
    end
    assert.equal("shape", with(function() return ag.ones(3, {dtype = "f64"}) end).code)
    assert.equal("shape", with(function() return ag.ones(2) end).code)
    assert.equal("argument", with(function() return 3 end).code)
    assert.has_error(function() ag.ones(2):register_hook(print) end)
    assert.has_error(function() x:register_hook(3) end)
  end)

  it("may run ops and a backward of its own", function()
    local x, other = leaf {1}, leaf {5}
    x:register_hook(function(g)
      ag.enable_grad(function() (other * other):sum():backward() end)
      return g * 2
    end);
    (x * 3):sum():backward()
    assert.same({6}, x.grad:tolist())
    assert.same({10}, other.grad:tolist())
  end)
end)
