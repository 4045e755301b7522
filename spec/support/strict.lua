--- strict: reading an undefined global or making a new one is an error, in the library and in the specs.
local M = {}

-- Penlight, luassert and busted probe for globals; that is theirs to do.
local function is_foreign(source)
  return source:find "/busted/" or source:find "/luassert/" or source:find "/pl/" or source:find "/say/"
    or source:find "/luacov/"
end

-- The first level above the metamethod that is not busted's environment proxy.
local function origin()
  local level = 3
  local info = debug.getinfo(level, "S")
  while info and info.source:find("busted/environment.lua", 1, true) do
    level = level + 1
    info = debug.getinfo(level, "S")
  end
  return info and info.source or "?", level
end

--- Makes _G strict; called again it does nothing.
function M.install()
  if getmetatable(_G) then return end
  setmetatable(_G, {
    __index = function(_, name)
      local source, level = origin()
      if is_foreign(source) then return nil end
      error(("undefined global '%s'"):format(tostring(name)), level - 1)
    end,
    __newindex = function(t, name, value)
      local source, level = origin()
      if not is_foreign(source) then error(("new global '%s'"):format(tostring(name)), level - 1) end
      rawset(t, name, value)
    end,
  })
end

return M
