--- read_options: argand.options, by which the library's own functions read their options tables.
local options = require "argand.options"

local known = { lr = 0.1, nesterov = false, mode = "fan_in", seed = options.optional.number, any = options.optional.any }

local function failure(...)
  local ok, err = pcall(options.read, "Owner", ...)
  assert.is_false(ok)
  return err
end

describe("options.read", function()
  it("fills in defaults and leaves out optional ones", function()
    assert.same({ lr = 0.1, nesterov = false, mode = "fan_in" }, options.read("Owner", nil, known))
    assert.same({ lr = 2, nesterov = true, mode = "x", seed = 7, any = "y" },
      options.read("Owner", { lr = 2, nesterov = true, mode = "x", seed = 7, any = "y" }, known))
  end)

  it("returns a fresh table", function()
    local given = { lr = 1 }
    local read = options.read("Owner", given, known)
    read.lr = 5
    assert.equal(1, given.lr)
    assert.equal(0.1, options.read("Owner", nil, known).lr)
  end)

  it("refuses unknown names with the near one, or with all", function()
    local err = failure({ nestrov = true }, known)
    assert.equal("option", err.code)
    assert.equal("Owner", err.op)
    assert.equal("Owner: unknown option 'nestrov'; did you mean 'nesterov'?", err.message)
    assert.equal("options are: any, lr, mode, nesterov, seed", failure({ quantity = 1 }, known).hint)
    assert.equal("it takes no options", failure({ x = 1 }, {}).hint)
    assert.equal("Owner: unknown option '1'; options are: any, lr, mode, nesterov, seed", failure({ 5 }, known).message)
  end)

  it("checks types, by the default or as declared", function()
    assert.equal("Owner: lr: expected number, got string", failure({ lr = "1" }, known).message)
    assert.equal("Owner: nesterov: expected boolean, got number", failure({ nesterov = 1 }, known).message)
    assert.equal("Owner: seed: expected number, got boolean", failure({ seed = true }, known).message)
    assert.equal("Owner: options: expected a table, got number", failure(3, known).message)
  end)

  it("blames the caller's line", function()
    assert.is_truthy(failure({ lr = "1" }, known).where:find("read_options_spec.lua:", 1, true))
  end)
end)

describe("options", function()
  it("finds the nearest word", function()
    local words = { "relu", "gelu", "momentum" }
    assert.equal("relu", options.nearest("ReLu", words))
    assert.equal("momentum", options.nearest("momentm", words))
    assert.equal("relu", options.nearest("rel", { "gex", "relu" })) -- one letter to insert
    assert.is_nil(options.nearest("zzzz", words))
    assert.is_nil(options.nearest("", words))
  end)

  it("tells numbers in a range; NaN is in none", function()
    assert.is_true(options.is_between(0, 0, 1))
    assert.is_true(options.is_between(5, 0))
    assert.is_false(options.is_between(1.1, 0, 1))
    assert.is_false(options.is_between(-1, 0))
    assert.is_false(options.is_between(0 / 0, 0))
    assert.is_false(options.is_between("1", 0))
  end)
end)
