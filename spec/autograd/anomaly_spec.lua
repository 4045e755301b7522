-- anomaly_spec: anomaly mode stops at the first NaN and names the line of the forward call.
local ag = require "argand"

local function line() return debug.getinfo(2, "l").currentline end

describe("anomaly mode", function()
  after_each(function() ag.set_anomaly_mode(false) end)

  it("raises at the line that makes a NaN", function()
    local x = ag.tensor({-1}, {requires_grad = true})
    local at
    ag.set_anomaly_mode(true)
    local ok, err = pcall(function()
      at = line() + 1
      local y = x:log()
      return y
    end)
    assert.is_false(ok)
    assert.equal("log", err.op)
    assert.truthy(err.where:find("anomaly_spec.lua:" .. at, 1, true))
    ag.set_anomaly_mode(false)
    assert.is_true(x:log().requires_grad)
  end)

  it("names the forward line of the op whose gradient is NaN", function()
    local x = ag.tensor({0}, {requires_grad = true})
    ag.set_anomaly_mode(true)
    local at = line() + 1
    local root = x:sqrt()
    local y = (root * 0):sum()
    local ok, err = pcall(y.backward, y)
    assert.is_false(ok)
    assert.truthy(tostring(err):find("sqrt", 1, true))
    assert.truthy(tostring(err):find("anomaly_spec.lua:" .. at, 1, true))
    assert.is_nil(x.grad)
  end)

  it("watches functions of the user", function()
    local Bad = ag.Function {name = "Bad", forward = function(_, t) return t * 1 end,
      backward = function(_, g) return g * (0 / 0) end}
    local x = ag.tensor({1}, {requires_grad = true})
    ag.set_anomaly_mode(true)
    local at = line() + 1
    local y = Bad(x)
    local ok, err = pcall(function() y:sum():backward() end)
    assert.is_false(ok)
    assert.truthy(tostring(err):find("Bad", 1, true))
    assert.truthy(tostring(err):find("anomaly_spec.lua:" .. at, 1, true))
  end)
end)
